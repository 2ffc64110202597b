// SPDX-License-Identifier: Apache-2.0

// How claims end, and how they return to the queue.

import { amountOn } from "@millpond/scheduler";
import { type Reason, reason as makeReason } from "@millpond/api";
import type { Transaction } from "../state/transaction.ts";
import { toStatement } from "../domain/to-scheduler-holding.ts";
import type {
  AllocationRecord,
  ClaimRecord,
  ClaimRecordState,
  NodeRecord,
  UsageRecord,
} from "../domain/records.ts";
import { activeSeconds, type ObservedState } from "../domain/observed-state.ts";

/** Seconds after which claims that do not wait for a lost node are taken from it. */
export const nodeLossAfterSeconds = 30;

/**
 * Ends a claim. Its allocation stays accounted for until its node's agent has reported that no session uses it, unless no
 * ticket was ever issued.
 */
export function endClaim(
  transaction: Transaction,
  observed: ObservedState,
  claim: ClaimRecord,
  end: { readonly state: Extract<ClaimRecordState, "released" | "failed">; readonly reason: Reason },
): void {
  recordWait(transaction, claim, 0);
  transaction.putClaim({ ...claim, ...end, ...noNotice, endedAt: transaction.now, waitingSince: null });
  const kind = end.state === "released" ? "ClaimReleased" : "ClaimFailed";
  transaction.addEvent(kind, `claim/${claim.name}`, end.reason);
  const allocation = transaction.allocation(claim.name);
  if (allocation !== undefined) {
    takeBack(transaction, observed, claim, allocation);
  }
}

/**
 * When a bound claim gets notice of the end of its time limit, in Unix seconds: its grace before the end, but not before
 * half of the limit has passed.
 */
export function limitNoticeAt({
  boundAt,
  timeLimitSeconds,
  graceSeconds,
}: Pick<ClaimRecord, "boundAt" | "timeLimitSeconds" | "graceSeconds">): number {
  const notice = Math.min(graceSeconds, Math.floor(timeLimitSeconds / 2));
  return (boundAt ?? 0) + timeLimitSeconds - notice;
}

/** The members of a claim for which no preemption is planned. */
export const noNotice = { preemptAt: null, isNoticeFinal: false } as const;

/** The next program has not seen any devices yet. */
const asleep = { state: "dormant", waitingSince: null, toldModels: [], toldHost: "" } as const;

/** Makes a lazy claim dormant: it holds and requests nothing until one of its programs needs its devices. */
export function sleepClaim(
  transaction: Transaction,
  observed: ObservedState,
  claim: ClaimRecord,
  reason: Reason,
): void {
  recordWait(transaction, claim, 0);
  transaction.putClaim({ ...claim, ...asleep, ...noNotice, reason });
  transaction.addEvent("ClaimDormant", `claim/${claim.name}`, reason);
  const allocation = transaction.allocation(claim.name);
  if (allocation !== undefined) {
    takeBack(transaction, observed, claim, allocation);
  }
}

/**
 * Returns a bound claim to the queue, at its previous place; a lazy one becomes dormant until a program needs it. A claim
 * that belongs to a process ends instead, because that process cannot start over.
 */
export function requeueClaim(
  transaction: Transaction,
  observed: ObservedState,
  claim: ClaimRecord,
  reason: Reason,
): void {
  if (claim.isSessionBound) {
    endClaim(transaction, observed, claim, { state: "failed", reason });
    return;
  }
  const allocation = transaction.allocation(claim.name);
  transaction.putClaim({
    ...claim,
    ...(claim.isLazy
      ? { ...asleep, reason }
      : ({ state: "pending", reason: undefined, waitingSince: transaction.now } as const)),
    ...noNotice,
    requeues: claim.requeues + 1,
  });
  transaction.addEvent("ClaimRequeued", `claim/${claim.name}`, reason);
  if (allocation !== undefined) {
    takeBack(transaction, observed, claim, allocation);
  }
}

export interface Notice {
  readonly at: number;
  readonly reason: Reason;
  /** Whether the claim then ends instead of waiting again. */
  readonly isFinal: boolean;
}

/** Gives a bound claim notice that its allocation will be taken. */
export function giveNotice(
  transaction: Transaction,
  claim: ClaimRecord,
  { at, reason, isFinal }: Notice,
): void {
  if (claim.preemptAt !== null && claim.preemptAt <= at) {
    return;
  }
  transaction.putClaim({ ...claim, preemptAt: at, isNoticeFinal: isFinal, reason });
  const seconds = Math.max(0, at - transaction.now);
  const detail = makeReason("notice", { isFinal, seconds, reason });
  transaction.addEvent("ClaimPreempting", `claim/${claim.name}`, detail);
}

/** Carries out an announced preemption. */
export function concludeNotice(transaction: Transaction, observed: ObservedState, claim: ClaimRecord): void {
  // A claim with notice always has a reason.
  const reason = claim.reason ?? makeReason("not-planned-yet");
  if (claim.isNoticeFinal) {
    endClaim(transaction, observed, claim, { state: "released", reason });
  } else {
    requeueClaim(transaction, observed, claim, reason);
  }
}

/** Records how long a claim waited, with the capacity that it requested or got. */
export function recordWait(transaction: Transaction, claim: ClaimRecord, gpuMilli: number): void {
  const { name, tenant, queue, user, waitingSince } = claim;
  if (waitingSince !== null && waitingSince < transaction.now) {
    transaction.usage.push({
      kind: "waited",
      claim: name,
      tenant,
      queue,
      user,
      model: "",
      gpuMilli: gpuMilli === 0 ? askedGpuMilli(claim) : gpuMilli,
      beganAt: waitingSince,
      endedAt: transaction.now,
      activeSeconds: 0,
    });
  }
}

/** The request of a claim in thousandths of a device, as far as that does not depend on the device. */
export function askedGpuMilli({ gpus, memoryBytes, memoryPercent, computePercent }: ClaimRecord): number {
  const share = memoryBytes > 0n ? computePercent : Math.max(memoryPercent || 100, computePercent);
  return gpus * share * 10;
}

function takeBack(
  transaction: Transaction,
  observed: ObservedState,
  claim: ClaimRecord,
  allocation: AllocationRecord,
): void {
  recordHeld(transaction, observed, claim, allocation);
  if (observed.ticketed.has(allocation.epoch)) {
    transaction.putAllocation({ ...allocation, releasedRevision: transaction.revision, resizing: null });
  } else {
    transaction.removeAllocation(allocation);
  }
}

/** Records a claim's usage since it was bound or resized. */
export function recordHeld(
  transaction: Transaction,
  observed: ObservedState,
  claim: ClaimRecord,
  allocation: AllocationRecord,
): void {
  const node = transaction.nodes.get(allocation.node);
  if (allocation.grantedAt < transaction.now) {
    const seconds = activeSeconds(observed, allocation.epoch);
    transaction.usage.push(...heldUsage(claim, { allocation, node, now: transaction.now, seconds }));
  }
}

/** Usage of an allocation until now: one record for each model of its devices. */
export function heldUsage(
  { name, tenant, queue, user }: ClaimRecord,
  {
    allocation,
    node,
    now,
    seconds,
  }: {
    readonly allocation: AllocationRecord;
    readonly node: NodeRecord | undefined;
    readonly now: number;
    /** Seconds in which its sessions made calls. */
    readonly seconds: number;
  },
): UsageRecord[] {
  const { grantedAt } = allocation;
  const statement = toStatement(allocation, node);
  const modelOf = (uuid: string) => node?.devices.find((device) => device.uuid === uuid)?.name ?? "";
  const byModel = Map.groupBy(statement.devices, ({ uuid }) => modelOf(uuid));
  return [...byModel].map(([model, devices]) => ({
    kind: "held",
    claim: name,
    tenant,
    queue,
    user,
    model,
    gpuMilli: amountOn(node, byModel.size === 1 ? statement : { devices }).gpuMilli,
    beganAt: grantedAt,
    endedAt: now,
    activeSeconds: Math.min(seconds, Math.max(0, now - grantedAt)),
  }));
}
