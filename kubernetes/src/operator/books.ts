// SPDX-License-Identifier: Apache-2.0

// Compares the allocations that Kubernetes and the pool have recorded. Each of the two lags behind the other for a
// moment after every change, so only a difference that persists counts.

import { type Claim, ClaimState, type Node } from "@millpond/api";
import type { ResourceV1ResourceClaim, V1Pod } from "@kubernetes/client-node";
import type { Logger } from "pino";
import { claimName, podOfClaim } from "../request/pod-claims.ts";
import { keysOf, type ResourceNames } from "../request/resource-names.ts";
import { allocatedOf, resourceClaimOfClaim, sharesOf } from "../request/user-claims.ts";
import { hasEnded } from "./claim-view.ts";
import { claimKey } from "./claims/device-claims.ts";

export const differenceKinds = [
  /** A pod runs, and the pool has no claim for it. */
  "pod-without-claim",
  /** The pool has a claim without a pod or a ResourceClaim that it is for. */
  "claim-without-pod",
  /** The pool has granted devices, and Kubernetes has recorded other ones. */
  "other-devices",
  /** The devices are the same, and the parts of them differ; a resize does not count. */
  "other-size",
  /** Kubernetes has recorded devices for a claim that the pool does not have. */
  "not-in-pool",
] as const;

export type DifferenceKind = (typeof differenceKinds)[number];

export interface Difference {
  readonly kind: DifferenceKind;
  /** Name of a claim of the pool, a pod or a ResourceClaim. */
  readonly subject: string;
}

export interface Books {
  readonly names: ResourceNames;
  readonly claims: ReadonlyMap<string, Claim>;
  /** Pods that use the pool, by UID. */
  readonly pods: ReadonlyMap<string, V1Pod>;
  /** By UID; undefined: the cluster has no ResourceClaims. */
  readonly resourceClaims: ReadonlyMap<string, ResourceV1ResourceClaim> | undefined;
  readonly nodes: readonly Pick<Node, "name" | "devices">[];
}

/** All present differences. A pure function. */
export function compareBooks({ names, claims, pods, resourceClaims, nodes }: Books): Difference[] {
  const found: Difference[] = [];
  const isLive = (name: string): boolean => {
    const claim = claims.get(name);
    return claim !== undefined && !hasEnded(claim);
  };
  for (const [uid, { metadata, status }] of pods) {
    const asks = metadata?.annotations?.[keysOf(names).request] !== undefined;
    if (asks && status?.phase === "Running" && !isLive(claimName(uid, 0)))
      found.push({ kind: "pod-without-claim", subject: `${metadata.namespace}/${metadata.name}` });
  }
  for (const name of claims.keys()) {
    const resourceClaim = resourceClaimOfClaim(name);
    const isWanted =
      resourceClaim === undefined
        ? pods.has(podOfClaim(name)?.uid ?? "")
        : resourceClaims?.has(resourceClaim);
    if (isLive(name) && isWanted !== true) found.push({ kind: "claim-without-pod", subject: name });
  }
  for (const resourceClaim of resourceClaims?.values() ?? []) {
    const name = resourceClaim.metadata?.annotations?.[claimKey(names)];
    const results = allocatedOf(names.domain, resourceClaim);
    if (name === undefined || results.length === 0) continue;
    const claim = claims.get(name);
    const { namespace, name: own } = resourceClaim.metadata ?? {};
    if (!isLive(name)) found.push({ kind: "not-in-pool", subject: `${namespace}/${own}` });
    // Lazy claims hold nothing, and Kubernetes records a device of which nothing is allocated.
    else if (claim?.state === ClaimState.BOUND && !claim.lazy) {
      const kind = compareAllocation(claim, results, nodes);
      if (kind !== undefined) found.push({ kind, subject: name });
    }
  }
  return found;
}

type Results = ReturnType<typeof allocatedOf>;

function compareAllocation(
  { allocation }: Claim,
  results: Results,
  nodes: readonly Pick<Node, "name" | "devices">[],
): DifferenceKind | undefined {
  if (allocation === undefined) return undefined;
  const devices = nodes.find(({ name }) => name === allocation.node)?.devices;
  // Its node is gone or not known yet, which other code handles.
  if (devices === undefined) return undefined;
  const granted = allocation.devices.map(({ uuid }) => {
    const index = devices.find((device) => device.uuid === uuid)?.index;
    return `${allocation.node}/gpu-${index}`;
  });
  const shares = sharesOf(results);
  const down = shares.map(({ pool, device }) => `${pool}/${device}`);
  if (granted.sort().join() !== down.sort().join()) return "other-devices";
  if (allocation.sizeRevision !== 0n) return undefined;
  const [size] = allocation.devices;
  const isSame = shares.every(
    ({ cores, memory }) =>
      (cores === undefined || cores === BigInt(size?.computePercent ?? 0)) &&
      (memory === undefined || memory === size?.memoryBytes),
  );
  return isSame ? undefined : "other-size";
}

/** How long one side's accounting may lag behind the other's. */
const patienceMs = 30_000;

/** Remembers since when each difference has existed. */
export class BookKeeper {
  readonly #log: Logger;
  readonly #since = new Map<
    string,
    { readonly difference: Difference; readonly atMs: number; isTold: boolean }
  >();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** @param nowMs Time of a monotonic clock. */
  take(differences: readonly Difference[], nowMs: number): void {
    const now = new Map(differences.map((each) => [`${each.kind} ${each.subject}`, each]));
    for (const key of this.#since.keys()) if (!now.has(key)) this.#since.delete(key);
    for (const [key, difference] of now) {
      const known = this.#since.get(key);
      if (known === undefined) this.#since.set(key, { difference, atMs: nowMs, isTold: false });
      else if (!known.isTold && nowMs - known.atMs >= patienceMs) {
        known.isTold = true;
        this.#log.error(
          { ...difference },
          "the accounting of Kubernetes and of the pool differs persistently",
        );
      }
    }
  }

  /** The differences that have lasted longer than the permitted lag. */
  lasting(kind: DifferenceKind): number {
    return [...this.#since.values()].filter(({ difference, isTold }) => isTold && difference.kind === kind)
      .length;
  }
}
