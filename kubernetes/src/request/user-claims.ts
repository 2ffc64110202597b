// SPDX-License-Identifier: Apache-2.0

// ResourceClaims of users, written by themselves or made from a template: turns the allocation of Kubernetes' scheduler into a
// claim of the pool for the same devices. Pure functions.

import { createHash } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ResourceV1ResourceClaim, V1Container, V1DeviceClass, V1Pod } from "@kubernetes/client-node";
import { type ClaimSchema, millpondError, type Node } from "@millpond/api";
import { clusterLabel, leaseSeconds, maxOwnerLength } from "./pod-claims.ts";
import { parseWholeQuantity } from "./quantity.ts";
import { kindOfResource, type ResourceNames } from "./resource-names.ts";

/**
 * Stands for the ResourceClaim that Kubernetes' scheduler creates for all extended resources of a pod that map to
 * device classes. No name in `spec.resourceClaims` has this form.
 */
export const extendedClaim = "*";

/** The ResourceClaims of a pod for devices of the pool, and the containers that use them. */
export interface UserClaim {
  /** Name within the pod, from `spec.resourceClaims`. */
  readonly claim: string;
  readonly containers: readonly string[];
}

/** Formats them for the annotation `claims`. */
export function formatUserClaims(claims: readonly UserClaim[]): string {
  return JSON.stringify(claims);
}

/** @throws MILLPOND_E_INVALID for text that `formatUserClaims` did not write */
export function parseUserClaims(text: string): UserClaim[] {
  const isNames = (value: unknown): value is string[] =>
    Array.isArray(value) && value.length > 0 && value.every((name) => typeof name === "string");
  let claims: unknown;
  try {
    claims = JSON.parse(text);
  } catch {
    claims = undefined;
  }
  if (!Array.isArray(claims) || claims.length === 0) throw notWritten();
  return claims.map((each: unknown) => {
    const { claim, containers } = (each ?? {}) as Record<string, unknown>;
    if (typeof claim !== "string" || !isNames(containers)) throw notWritten();
    return { claim, containers };
  });
}

function notWritten(): Error {
  return millpondError(
    "MILLPOND_E_INVALID",
    "the pod's annotation claims is not what Millpond's webhook writes",
    {
      remedy: "Leave the annotation out.",
    },
  );
}

/** Returns the name of the ResourceClaim behind one of a pod's entries; undefined: it has not been created yet. */
export function resourceClaimOf({ spec, status }: V1Pod, claim: string): string | undefined {
  if (claim === extendedClaim) return status?.extendedResourceClaimStatus?.resourceClaimName;
  return (
    spec?.resourceClaims?.find(({ name }) => name === claim)?.resourceClaimName ??
    status?.resourceClaimStatuses?.find(({ name }) => name === claim)?.resourceClaimName
  );
}

/** Whether devices of the class belong to the pool: the class is our own, or selects our driver. */
export function isClassOf(domain: string, { metadata, spec }: V1DeviceClass): boolean {
  return metadata?.name === domain || selectsDriver(domain, spec.selectors);
}

type Selectors = readonly { readonly cel?: { readonly expression: string } }[];

/** Whether selectors name our driver, or attributes or capacity that only its devices have. */
function selectsDriver(domain: string, selectors: Selectors = []): boolean {
  const name = `["']${domain.replaceAll(".", "\\.")}["']`;
  const forms = [
    `device\\.driver\\s*==\\s*${name}`,
    `${name}\\s*==\\s*device\\.driver`,
    `device\\.driver\\s+in\\s+\\[\\s*${name}\\s*\\]`,
    `device\\.(?:attributes|capacity)\\[\\s*${name}\\s*\\]`,
  ];
  const pattern = new RegExp(forms.join("|"));
  return selectors.some(({ cel }) => pattern.test(cel?.expression ?? ""));
}

/** Names of limits by which containers request devices of a class. */
export function limitsOfClass({ metadata, spec }: V1DeviceClass): string[] {
  const implicit = `deviceclass.resource.kubernetes.io/${metadata?.name ?? ""}`;
  return spec.extendedResourceName === undefined ? [implicit] : [implicit, spec.extendedResourceName];
}

/** All limits that request devices of the pool by a class, except those that mean a vGPU anyway. */
export function limitsOfClasses(names: ResourceNames, classes: Iterable<V1DeviceClass>): string[] {
  return [...classes]
    .filter((each) => isClassOf(names.domain, each))
    .flatMap(limitsOfClass)
    .filter((limit) => kindOfResource(names, limit) === undefined)
    .sort();
}

type DeviceRequests = ResourceV1ResourceClaim["spec"]["devices"];
type DeviceRequest = NonNullable<NonNullable<DeviceRequests>["requests"]>[number];
type Alternative =
  | NonNullable<DeviceRequest["exactly"]>
  | NonNullable<DeviceRequest["firstAvailable"]>[number];

/**
 * Returns the requests, and alternatives of requests, that are for devices of the pool: they name a class of its devices,
 * or select them.
 *
 * @param isOurs Whether a class of this name has only devices of the pool.
 */
export function requestsForPool(
  domain: string,
  devices: DeviceRequests,
  isOurs: (className: string) => boolean,
): { readonly name: string; readonly asked: Alternative }[] {
  return (devices?.requests ?? [])
    .flatMap(({ name, exactly, firstAvailable = [] }) => [
      ...(exactly === undefined ? [] : [{ name, asked: exactly }]),
      ...firstAvailable.map((asked) => ({ name: `${name}/${asked.name}`, asked })),
    ])
    .filter(({ asked }) => isOurs(asked.deviceClassName) || selectsDriver(domain, asked.selectors));
}

/** Returns the names of all classes in the requests. */
export function classNamesOf(devices: DeviceRequests): string[] {
  const names = (devices?.requests ?? []).flatMap(({ exactly, firstAvailable = [] }) => [
    ...(exactly === undefined ? [] : [exactly.deviceClassName]),
    ...firstAvailable.map(({ deviceClassName }) => deviceClassName),
  ]);
  return [...new Set(names)];
}

/** A container that names requests of a claim sees their devices only; so does each that has an extended resource. */
export function seesPart({ resources }: Pick<V1Container, "resources">, claim: string): boolean {
  const entries = (resources?.claims ?? []).filter(({ name }) => name === claim);
  return claim === extendedClaim || entries.every(({ request = "" }) => request !== "");
}

/** Returns the requests of one of a pod's claims whose devices a container sees. */
export function requestsOf({ spec, status }: V1Pod, claim: string, container: string): string[] {
  if (claim === extendedClaim) {
    const { requestMappings = [] } = status?.extendedResourceClaimStatus ?? {};
    return requestMappings
      .filter(({ containerName }) => containerName === container)
      .map(({ requestName }) => requestName);
  }
  return [...(spec?.containers ?? []), ...(spec?.initContainers ?? [])]
    .filter(({ name }) => name === container)
    .flatMap(({ resources }) => resources?.claims ?? [])
    .flatMap(({ name, request }) => (name === claim && request !== undefined ? [request] : []));
}

type Result = NonNullable<
  NonNullable<NonNullable<NonNullable<ResourceV1ResourceClaim["status"]>["allocation"]>["devices"]>["results"]
>[number];

/** Returns the devices of the pool that are allocated to a ResourceClaim. */
export function allocatedOf(domain: string, { status }: ResourceV1ResourceClaim): Result[] {
  return (status?.allocation?.devices?.results ?? []).filter(({ driver }) => driver === domain);
}

/** Returns the request that a device was allocated for; of alternatives, `gpu/small`, the request that has them. */
export function requestOf({ request }: Pick<Result, "request">): string {
  return request.split("/")[0] ?? request;
}

/** The part of a device that a ResourceClaim has; an undefined size stands for the whole device. */
export interface DeviceShare {
  /** Node of the pool. */
  readonly pool: string;
  readonly device: string;
  readonly cores: bigint | undefined;
  readonly memory: bigint | undefined;
}

/** Returns the devices of a ResourceClaim, each once: several shares of one device are one vGPU with their sum. */
export function sharesOf(results: readonly Result[]): DeviceShare[] {
  const shares = new Map<string, DeviceShare>();
  for (const { pool, device, consumedCapacity } of results) {
    const key = `${pool}/${device}`;
    const consumed = (what: "cores" | "memory"): bigint | undefined => {
      const text = consumedCapacity?.[what];
      const others = shares.has(key) ? shares.get(key)?.[what] : 0n;
      return text === undefined || others === undefined ? undefined : others + parseWholeQuantity(text, what);
    };
    shares.set(key, { pool, device, cores: consumed("cores"), memory: consumed("memory") });
  }
  return [...shares.values()];
}

/**
 * Returns the name of the claim for the allocation of a ResourceClaim; another allocation gives another name. Undefined: it
 * has no devices of the pool.
 */
export function userClaimName(domain: string, claim: ResourceV1ResourceClaim): string | undefined {
  const results = allocatedOf(domain, claim);
  if (results.length === 0) return undefined;
  const said = results.map(({ pool, device, shareID, consumedCapacity }) => [
    pool,
    device,
    shareID,
    consumedCapacity,
  ]);
  const hash = createHash("sha256").update(JSON.stringify(said)).digest("hex").slice(0, 8);
  return `rc-${claim.metadata?.uid ?? ""}-${hash}`;
}

/** Returns the UID of the ResourceClaim behind a claim; undefined: the claim has none. */
export function resourceClaimOfClaim(name: string): string | undefined {
  return /^rc-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9a-f]{8}$/.exec(name)?.[1];
}

export interface UserClaimOwner {
  readonly tenant: string;
  readonly queue: string;
  readonly priority: number;
  readonly cluster: string;
}

/**
 * Returns the claim of the pool for an allocation of Kubernetes' scheduler.
 *
 * @param nodes nodes of the pool
 * @throws MILLPOND_E_INVALID where the pool has no such claims, MILLPOND_E_NOT_FOUND where it has no such device
 */
export function toUserClaim(
  domain: string,
  claim: ResourceV1ResourceClaim,
  nodes: readonly Pick<Node, "name" | "devices">[],
  { tenant, queue, priority, cluster }: UserClaimOwner,
): MessageInitShape<typeof ClaimSchema> {
  const results = allocatedOf(domain, claim);
  const { namespace = "", name = "" } = claim.metadata ?? {};
  const refuse = (what: string, remedy: string): Error =>
    millpondError("MILLPOND_E_INVALID", `the ResourceClaim ${namespace}/${name} ${what}`, { remedy });
  const [first] = results;
  if (first === undefined) throw refuse("has nothing of the pool", "Wait until it is allocated.");
  if (results.some(({ adminAccess }) => adminAccess === true)) {
    throw refuse(
      "asks for adminAccess, and devices of the pool are used only through its vGPUs",
      "Leave adminAccess out: administrators see the pool by `millpond get nodes`.",
    );
  }
  const { config = [] } = claim.status?.allocation?.devices ?? {};
  if (config.some(({ opaque }) => opaque?.driver === domain)) {
    throw refuse(
      `has parameters for the driver ${domain}, which takes none`,
      "Leave its config out: capacity and selectors say what it gets.",
    );
  }
  if (results.some(({ pool }) => pool !== first.pool)) {
    throw refuse(
      `has devices of several nodes of the pool, ${[...new Set(results.map(({ pool }) => pool))].join(", ")}`,
      `Give it the constraint matchAttribute: ${domain}/node, or make several claims.`,
    );
  }
  const devices = nodes.find((node) => node.name === first.pool)?.devices ?? [];
  const sizes = sharesOf(results).map(({ pool, device: found, cores, memory }) => {
    const device = devices.find(({ index }) => `gpu-${index}` === found);
    if (device === undefined)
      throw millpondError("MILLPOND_E_NOT_FOUND", `the pool has no device ${pool}/${found} now`);
    return { uuid: device.uuid, cores: cores ?? 100n, memory: memory ?? device.memoryBytes };
  });
  const [size] = sizes;
  if (size === undefined || size.cores < 1n || size.memory < 1n << 20n) {
    throw refuse(
      `asks for ${size?.cores} cores and ${size?.memory} bytes of memory`,
      "Ask for capacity of at least 1 of cores and 1Mi of memory, or for none, which is the whole device.",
    );
  }
  if (sizes.some(({ cores, memory }) => cores !== size.cores || memory !== size.memory)) {
    throw refuse("has parts of several sizes", "Make a claim for each size.");
  }
  return {
    name: userClaimName(domain, claim) ?? "",
    owner: `resourceclaim ${namespace}/${name}`.slice(0, maxOwnerLength),
    gpus: sizes.length,
    memoryBytes: size.memory,
    computePercent: Number(size.cores),
    onlyNode: first.pool,
    onlyDevices: sizes.map(({ uuid }) => uuid),
    tenant,
    queue,
    priority,
    leaseSeconds,
    labels: {
      [clusterLabel]: cluster,
      "kubernetes/namespace": namespace,
      "kubernetes/resourceclaim": name.slice(0, 63).replace(/[-.]+$/, ""),
    },
  };
}
