// SPDX-License-Identifier: Apache-2.0

// Claims as the scheduler sees them.

import type {
  ClaimRequest,
  Constraints,
  QueueSnapshot,
  RunningClaim,
  WaitingClaim,
} from "@millpond/scheduler";
import type { Transaction } from "./transaction.ts";
import { toLeftover, toStatement } from "./picture.ts";
import type { ClaimSpec } from "./store/claim-spec.ts";
import { defaultQueueName } from "./store/claim-spec.ts";
import { makeDefaultQueue } from "./store/queue-spec.ts";
import type { AllocationRecord, ClaimRecord } from "./store/store.ts";

/** Label of nodes that a claim's `pool` looks at. */
const poolLabel = "pool";

/** What a claim asks of the devices. */
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
    ...(Object.keys(spec.affinity).length === 0 ? {} : { affinity: spec.affinity }),
    ...(Object.keys(spec.antiAffinity).length === 0 ? {} : { antiAffinity: spec.antiAffinity }),
    ...(spec.locality === "local-only" ? { onlyHost: spec.clientHost } : {}),
    ...(spec.toldHost === "" ? {} : { onlyHost: spec.toldHost }),
    ...(spec.isExclusive ? { isExclusive: true } : {}),
  };
}

export function toWaiting(claim: ClaimRecord): WaitingClaim {
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

/** @param isReady Whether nodes are in contact: of what is left on one that is not, nobody knows when it ends. */
export function toQueueSnapshot(
  transaction: Transaction,
  pool: QueueSnapshot["pool"],
  isReady: (node: string) => boolean,
): QueueSnapshot {
  // Most decisions are made without looking at everybody who holds something.
  let held: Held | undefined;
  const look = () => {
    held ??= heldBy(transaction, isReady);
    return held;
  };
  return {
    now: transaction.now,
    pool,
    queues: allQueues(transaction),
    tenants: transaction.allTenants(),
    waiting: transaction.pendingClaims().map(toWaiting),
    totals: transaction.totals(),
    get running() {
      return look().running;
    },
    get leftovers() {
      return look().leftovers;
    },
  };
}

type Held = Pick<QueueSnapshot, "running" | "leftovers">;

function heldBy(transaction: Transaction, isReady: (node: string) => boolean): Held {
  const running: RunningClaim[] = [];
  const leftovers: QueueSnapshot["leftovers"][number][] = [];
  for (const allocation of transaction.allocations.all()) {
    const claim = transaction.claim(allocation.claim);
    if (allocation.releasedRevision === null && claim !== undefined) {
      running.push(toRunning(claim, allocation, transaction));
    } else {
      const endsAt = isReady(allocation.node) ? transaction.now : null;
      leftovers.push(toLeftover(allocation, transaction.node(allocation.node), endsAt));
    }
  }
  return { running, leftovers };
}

/** The queues, with the default one, which is always there. */
export function allQueues(transaction: Pick<Transaction, "allQueues">): QueueSnapshot["queues"] {
  const queues = transaction.allQueues();
  return queues.some(({ name }) => name === defaultQueueName)
    ? queues
    : [...queues, makeDefaultQueue(defaultQueueName)];
}

function toRunning(claim: ClaimRecord, allocation: AllocationRecord, transaction: Transaction): RunningClaim {
  const boundAt = claim.boundAt ?? allocation.grantedAt;
  const ends = [
    ...(claim.timeLimitSeconds > 0 ? [boundAt + claim.timeLimitSeconds] : []),
    ...(claim.preemptAt === null ? [] : [claim.preemptAt]),
  ];
  return {
    ...standingOf(claim),
    statement: toStatement(allocation, transaction.node(allocation.node)),
    boundAt,
    endsAt: ends.length === 0 ? null : Math.max(transaction.now, Math.min(...ends)),
    isEnding: claim.preemptAt !== null,
    graceSeconds: claim.graceSeconds,
  };
}

/** Who asks. */
export function standingOf({ queue, tenant, priority, isPreemptible, serviceClass, gang }: ClaimRecord) {
  const isBestEffort = serviceClass === "best-effort";
  return { queue, tenant, priority, isPreemptible: isPreemptible || isBestEffort, isBestEffort, gang };
}
