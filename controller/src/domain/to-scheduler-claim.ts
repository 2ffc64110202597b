// SPDX-License-Identifier: Apache-2.0

// Converts claims to the scheduler's types.

import type { ClaimRequest, Constraints, WaitingClaim } from "@millpond/scheduler";
import type { ClaimSpec } from "./claim-spec.ts";
import type { ClaimRecord } from "./records.ts";

/** Label of nodes that a claim's `pool` refers to. */
const poolLabel = "pool";

/** The device request of a claim. */
export function toRequest(spec: ClaimSpec): ClaimRequest {
  const constraints = toConstraints(spec);
  return {
    claim: spec.name,
    gpus: spec.gpus,
    memoryBytes: spec.memoryBytes,
    memoryPercent: spec.memoryPercent,
    computePercent: spec.isExclusive ? 100 : spec.computePercent,
    ...(spec.serviceClass === "best-effort" ? { isBestEffort: true } : {}),
    policy: spec.placement,
    ...(Object.keys(constraints).length === 0 ? {} : { constraints }),
    ...(Object.keys(spec.labels).length === 0 ? {} : { labels: spec.labels }),
  };
}

function toConstraints(spec: ClaimSpec): Constraints {
  const nodeLabels = spec.pool === "" ? spec.nodeLabels : { ...spec.nodeLabels, [poolLabel]: spec.pool };
  return {
    ...(spec.models.length === 0 ? {} : { models: spec.models }),
    ...(spec.toldModels.length === 0 ? {} : { onlyModels: spec.toldModels }),
    ...(spec.minComputeCapability === "" ? {} : { minComputeCapability: spec.minComputeCapability }),
    ...(Object.keys(nodeLabels).length === 0 ? {} : { nodeLabels }),
    ...(spec.onlyNode === "" ? {} : { onlyNodes: [spec.onlyNode] }),
    ...(spec.onlyDevices.length === 0 ? {} : { onlyDevices: spec.onlyDevices }),
    ...(Object.keys(spec.affinity).length === 0 ? {} : { affinity: spec.affinity }),
    ...(Object.keys(spec.antiAffinity).length === 0 ? {} : { antiAffinity: spec.antiAffinity }),
    ...(spec.locality === "local-only" ? { onlyHost: spec.clientHost } : {}),
    ...(spec.toldHost === "" ? {} : { onlyHost: spec.toldHost }),
    ...(spec.isExclusive ? { isExclusive: true } : {}),
  };
}

const waiting = new WeakMap<ClaimRecord, WaitingClaim>();

/** The same value as long as the claim is the same. */
export function toWaiting(claim: ClaimRecord): WaitingClaim {
  const known = waiting.get(claim) ?? makeWaiting(claim);
  waiting.set(claim, known);
  return known;
}

function makeWaiting(claim: ClaimRecord): WaitingClaim {
  return {
    request: toRequest(claim),
    ...standingOf(claim),
    arrival: claim.arrival,
    waitingSince: claim.waitingSince ?? claim.createdAt,
    timeLimitSeconds: claim.timeLimitSeconds,
    gangSize: claim.gangSize,
    isSameNode: claim.isSameNode,
    preferredHost: claim.locality === "prefer-local" ? claim.clientHost : "",
  };
}

/** Queue, tenant and priority of a claim, as the scheduler ranks it. */
export function standingOf(claim: ClaimRecord) {
  const { queue, tenant, user, priority, serviceClass, gang } = claim;
  const isBestEffort = serviceClass === "best-effort";
  const isPreemptible = claim.isPreemptible || isBestEffort;
  return { queue, tenant, user, priority, isPreemptible, isBestEffort, gang };
}
