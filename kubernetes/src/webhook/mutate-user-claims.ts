// SPDX-License-Identifier: Apache-2.0

// Pods with ResourceClaims that their users write, for devices of the pool: they are not held behind a gate, because
// Kubernetes' scheduler chooses the devices, but their programs must find their pool like those of all other pods.

import { randomBytes } from "node:crypto";
import { millpondError, quote } from "@millpond/api";
import type { V1DeviceClass, V1EnvVar, V1Pod } from "@kubernetes/client-node";
import { type Cluster, unlessStatus } from "../cluster/cluster.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import {
  classNamesOf,
  extendedClaim,
  formatUserClaims,
  isClassOf,
  limitsOfClasses,
  requestsForPool,
  seesPart,
  type UserClaim,
} from "../request/user-claims.ts";
import { environmentFor, type JsonPatchOperation, objectName } from "./mutate-pod.ts";

/** Key of the name of a claim in the pod's Secret. */
export function claimNameKey(index: number): string {
  return `claim-${index}`;
}

/** By which programs see some of the devices of their claim. */
const visibleVariable = "CUDA_VISIBLE_DEVICES";

/** Key of the positions of a container's devices in its claim, in the pod's Secret. */
export function visibleKey(container: string): string {
  return `devices-${container}`;
}

/** Which of a pod's ResourceClaims are for the pool, also those that no container uses. A ResourceClaim that does not exist yet is assumed not to be. */
export async function findUserClaims(
  { resource }: Cluster,
  names: ResourceNames,
  classes: Iterable<V1DeviceClass>,
  namespace: string,
  pod: V1Pod,
): Promise<UserClaim[]> {
  const { domain } = names;
  const known = [...classes];
  const ours = new Set(known.filter((each) => isClassOf(domain, each)).map(({ metadata }) => metadata?.name));
  ours.add(domain);
  const containers = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])];
  const found: UserClaim[] = [];
  for (const { name: claim, resourceClaimName, resourceClaimTemplateName } of pod.spec?.resourceClaims ??
    []) {
    const users = containers.filter((container) =>
      container.resources?.claims?.some(({ name }) => name === claim),
    );
    const spec =
      resourceClaimName === undefined
        ? (
            await unlessStatus(
              resource.readNamespacedResourceClaimTemplate({
                namespace,
                name: resourceClaimTemplateName ?? "",
              }),
              404,
            )
          )?.spec.spec
        : (
            await unlessStatus(
              resource.readNamespacedResourceClaim({ namespace, name: resourceClaimName }),
              404,
            )
          )?.spec;
    // The copy of the classes may be older than a class.
    for (const name of classNamesOf(spec?.devices)) {
      if (known.some(({ metadata }) => metadata?.name === name)) continue;
      const there = await unlessStatus(resource.readDeviceClass({ name }), 404);
      if (there !== undefined) known.push(there);
      if (there !== undefined && isClassOf(domain, there)) ours.add(name);
    }
    if (requestsForPool(domain, spec?.devices, (name) => ours.has(name)).length === 0) continue;
    found.push({ claim, containers: users.map(({ name }) => name) });
  }
  const limits = limitsOfClasses(names, known);
  const extended = containers.filter(({ resources }) =>
    limits.some((limit) => resources?.limits?.[limit] !== undefined),
  );
  if (extended.length > 0) found.push({ claim: extendedClaim, containers: extended.map(({ name }) => name) });
  return found;
}

/**
 * The patch for a pod with such claims.
 *
 * @param id 16 hexadecimal digits. Default: chosen at random; a parameter for tests.
 * @throws MILLPOND_E_INVALID
 */
export function mutateUserClaims(
  names: ResourceNames,
  pod: V1Pod,
  claims: readonly UserClaim[],
  id: string = randomBytes(8).toString("hex"),
): JsonPatchOperation[] {
  if (claims.length === 0) return [];
  const unused = claims.find(({ containers }) => containers.length === 0);
  if (unused !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the pod has the ResourceClaim ${quote(unused.claim)} of the pool, and no container uses it`,
      { remedy: `Add it to a container's resources: claims: [{name: ${unused.claim}}].` },
    );
  }
  const keys = keysOf(names);
  const patch: JsonPatchOperation[] = [
    { op: "add", path: "/metadata/labels", value: { ...pod.metadata?.labels, [keys.managed]: "true" } },
    {
      op: "add",
      path: "/metadata/annotations",
      value: { ...pod.metadata?.annotations, [keys.claims]: formatUserClaims(claims), [keys.id]: id },
    },
  ];
  for (const list of ["containers", "initContainers"] as const) {
    for (const [position, container] of (pod.spec?.[list] ?? []).entries()) {
      const used = [...claims.keys()].filter((index) => claims[index]?.containers.includes(container.name));
      const [index] = used;
      if (index === undefined) continue;
      if (used.length > 1) {
        throw millpondError(
          "MILLPOND_E_INVALID",
          `the container ${quote(container.name)} uses ${used.length} ResourceClaims of the pool, and a program has one`,
          { remedy: "Request several devices in one claim." },
        );
      }
      const fromSecret = (name: string, key: string): V1EnvVar => ({
        name,
        valueFrom: { secretKeyRef: { name: objectName(id), key } },
      });
      const own = [fromSecret("MILLPOND_CLAIM", claimNameKey(index))];
      const isChosen = container.env?.some(({ name }) => name === visibleVariable) === true;
      if (!isChosen && seesPart(container, claims[index]?.claim ?? ""))
        own.push(fromSecret(visibleVariable, visibleKey(container.name)));
      patch.push({
        op: "add",
        path: `/spec/${list}/${position}/env`,
        value: environmentFor(container, id, index, own),
      });
    }
  }
  return patch;
}
