// SPDX-License-Identifier: Apache-2.0

// Changes a pod that requests the pool when it is created: a pure function from the pod to a JSON patch.

import { randomBytes } from "node:crypto";
import { claimFieldNames, claimFieldSpecs, millpondError, quote } from "@millpond/api";
import type { V1Container, V1EnvVar, V1Pod } from "@kubernetes/client-node";
import { formatSlices, type PodRequest, type PodSlice, readPodRequest } from "../request/pod-request.ts";
import type { Allocation } from "../allocation.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import { withoutSlice } from "../request/slice.ts";
import { formatOriginal } from "./original-pod.ts";

/** How pods get their vGPUs in this cluster. */
export interface InjectionPolicy {
  readonly names: ResourceNames;
  /** `dra`: a ResourceClaim for each slice. `device-plugin`: extended resources of the node's plugin. */
  readonly allocation: Allocation;
  /** Whether pods wait behind a scheduling gate until they are granted their slices (Kubernetes ≥ 1.27). */
  readonly isGated: boolean;
}

export interface MutationOptions {
  /** Default: chosen at random, 16 hexadecimal digits; for tests. */
  readonly id?: string;
  /** Annotations reserved for Millpond that the author of this pod may nevertheless write. */
  readonly own?: readonly string[];
}

export interface JsonPatchOperation {
  readonly op: "add";
  readonly path: string;
  readonly value: unknown;
}

/** The directory of our library in containers; it is also in the dynamic linker's default directories. */
export const libraryDirectory = "/usr/lib/millpond";

/** Libraries in the client library's directory through which profilers in a program see its vGPUs. */
const profilerLibraries = ["libcupti.so.13", "libcupti.so.12"].map((name) => `${libraryDirectory}/${name}`);

/** Variables that lead programs to their pool and hold their request; pods may not set these themselves. */
const ownVariables = new Set<string>([
  "MILLPOND_POD_UID",
  "MILLPOND_CLAIM",
  "MILLPOND_CONTROLLER",
  "MILLPOND_CA",
  "MILLPOND_TOKEN",
  "MILLPOND_WORKER",
  "MILLPOND_TICKET",
  "MILLPOND_LINK_SECRET",
  ...claimFieldNames.map((name) => claimFieldSpecs[name].env),
]);

/** Name of the objects of a pod: its Secret, and with `-0`, `-1`, … its ResourceClaims. */
export function objectName(id: string): string {
  return `millpond-${id}`;
}

/** Key of a claim's token in the pod's Secret. */
export function tokenKey(index: number): string {
  return `token-${index}`;
}

/**
 * The patch for a pod that is being created; empty if it requests nothing of the pool.
 *
 * @throws MILLPOND_E_INVALID
 */
export function mutatePod(
  policy: InjectionPolicy,
  pod: V1Pod,
  { id = randomBytes(8).toString("hex"), own = [] }: MutationOptions = {},
): JsonPatchOperation[] {
  const { names } = policy;
  const request = readPodRequest(names, pod, own);
  if (request === undefined) return [];
  const keys = keysOf(names);
  const { slices } = request;
  const patch: JsonPatchOperation[] = [
    {
      op: "add",
      path: "/metadata/labels",
      value: { ...pod.metadata?.labels, [keys.managed]: "true" },
    },
    {
      op: "add",
      path: "/metadata/annotations",
      value: {
        ...pod.metadata?.annotations,
        [keys.request]: formatSlices(slices),
        [keys.id]: id,
        ...(isFollowed(pod, request) ? { [keys.original]: formatOriginal(names, pod) } : {}),
      },
    },
  ];
  if (policy.isGated) {
    if (pod.spec?.nodeName !== undefined && pod.spec.nodeName !== "") {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `the pod names its node, ${quote(pod.spec.nodeName)}, and so waits for nothing`,
        { remedy: "Choose the node by nodeSelector or affinity." },
      );
    }
    const gates = (pod.spec?.schedulingGates ?? []).filter(({ name }) => name !== keys.gate);
    patch.push({ op: "add", path: "/spec/schedulingGates", value: [...gates, { name: keys.gate }] });
  }
  if (policy.allocation === "dra") {
    const claims = slices.map((_, index) => ({
      name: resourceClaimReference(index),
      resourceClaimName: `${objectName(id)}-${index}`,
    }));
    patch.push({
      op: "add",
      path: "/spec/resourceClaims",
      value: [...(pod.spec?.resourceClaims ?? []), ...claims],
    });
  }
  for (const list of ["containers", "initContainers"] as const) {
    for (const [position, container] of (pod.spec?.[list] ?? []).entries()) {
      const index = slices.findIndex(({ containers }) => containers.includes(container.name));
      if (index < 0) continue;
      const path = `/spec/${list}/${position}`;
      const slice = slices[index] as PodSlice;
      patch.push(
        { op: "add", path: `${path}/resources`, value: resourcesOf(policy, container, slice, index) },
        { op: "add", path: `${path}/env`, value: environmentOf(container, id, index) },
      );
    }
  }
  return patch;
}

/** Whether the operator creates a replacement when the pool takes the pod's vGPUs, because no controller does. */
export function isFollowed({ metadata }: V1Pod, { isRequeued }: PodRequest): boolean {
  return (
    isRequeued === true && !(metadata?.ownerReferences ?? []).some(({ controller }) => controller === true)
  );
}

/** Name by which containers of a pod refer to one of its ResourceClaims. */
export function resourceClaimReference(index: number): string {
  return `millpond-${index}`;
}

/** Limits of ours that stay on a container. */
export function keptResources(
  { names, allocation }: InjectionPolicy,
  { slice }: PodSlice,
): ReadonlyMap<string, string> {
  // The kubelet gives a container with this resource our library; the number of devices does not matter there.
  return new Map(allocation === "dra" ? [] : [[names.resources.vgpu[0] ?? "", String(slice.gpus)]]);
}

function resourcesOf(
  policy: InjectionPolicy,
  container: V1Container,
  slice: PodSlice,
  index: number,
): unknown {
  const keeps = keptResources(policy, slice);
  const resources: Record<string, unknown> = {
    ...withoutSlice(policy.names, container.resources as Record<string, unknown> | undefined, keeps),
  };
  if (policy.allocation === "dra") {
    resources["claims"] = [...(container.resources?.claims ?? []), { name: resourceClaimReference(index) }];
  }
  return resources;
}

function environmentOf(container: V1Container, id: string, index: number): V1EnvVar[] {
  return environmentFor(container, id, index, [
    { name: "MILLPOND_POD_UID", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath: "metadata.uid" } } },
    {
      name: "MILLPOND_CLAIM",
      value: index === 0 ? "pod-$(MILLPOND_POD_UID)" : `pod-$(MILLPOND_POD_UID)-${index}`,
    },
  ]);
}

/**
 * A container's variables, with those by which its program finds its pool.
 *
 * @param index Index of its token in the pod's Secret.
 * @param claim The variables that name its claim.
 * @throws MILLPOND_E_INVALID if it sets one of them itself
 */
export function environmentFor(
  container: V1Container,
  id: string,
  index: number,
  claim: readonly V1EnvVar[],
): V1EnvVar[] {
  const given = container.env ?? [];
  const taken = given.find(({ name }) => ownVariables.has(name));
  if (taken !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the container ${quote(container.name)} sets ${taken.name}, which Millpond sets for it`,
      { remedy: "Omit it: the limits of the container and the annotations of the pod decide." },
    );
  }
  const fromSecret = (name: string, key: string): V1EnvVar => ({
    name,
    valueFrom: { secretKeyRef: { name: objectName(id), key } },
  });
  return [
    ...claim,
    fromSecret("MILLPOND_CONTROLLER", "controller"),
    fromSecret("MILLPOND_CA", "ca"),
    fromSecret("MILLPOND_TOKEN", tokenKey(index)),
    ...extendVariables(container.name, given),
  ];
}

/** A container's own variables, with our libraries in those of the dynamic linker. */
export function extendVariables(container: string, given: readonly V1EnvVar[]): V1EnvVar[] {
  return withProfilers(container, given).map((variable) =>
    // Without it, the linker finds our library because the node plugin mounts it into the linker's default
    // directories.
    variable.name === "LD_LIBRARY_PATH" && variable.value !== undefined && variable.value !== ""
      ? { ...variable, value: `${libraryDirectory}:${variable.value}` }
      : variable,
  );
}

/**
 * Preloads the libraries for profilers if the container requests it. It has to, because some of its programs may be
 * unable to load them, for example with another C library.
 */
function withProfilers(container: string, given: readonly V1EnvVar[]): readonly V1EnvVar[] {
  if (!given.some(({ name, value }) => name === "MILLPOND_PRELOAD" && value === "1")) return given;
  const own = given.find(({ name }) => name === "LD_PRELOAD");
  if (own?.valueFrom !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the container ${quote(container)} takes LD_PRELOAD from elsewhere, where the libraries for profilers cannot be added`,
      { remedy: "Write its value, or omit MILLPOND_PRELOAD." },
    );
  }
  const users = (own?.value ?? "").split(/[ :]+/).filter((entry) => entry !== "");
  const all = [...users, ...profilerLibraries.filter((path) => !users.includes(path))];
  const others = given.filter(({ name }) => name !== "LD_PRELOAD");
  return [...others, { name: "LD_PRELOAD", value: all.join(":") }];
}
