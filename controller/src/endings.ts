// SPDX-License-Identifier: Apache-2.0

// How claims end, and how they are put into the queue again.

import { amountOn } from "@millpond/scheduler";
import { formatDuration } from "@millpond/api";
import type { Transaction } from "./transaction.ts";
import { toStatement } from "./picture.ts";
import type { Facts } from "./settle.ts";
import type { AllocationRecord, ClaimRecord, ClaimRecordState } from "./store/store.ts";

/** A lost node's claims that do not want to wait for it are taken from it after so long. */
export const nodeLossAfterSeconds = 30;

/**
 * Ends a claim. What it holds stays taken until its node's agent has said that no session uses it, unless no ticket
 * was ever issued.
 */
export function endClaim(
  transaction: Transaction,
  facts: Facts,
  claim: ClaimRecord,
  end: { readonly state: Extract<ClaimRecordState, "released" | "failed">; readonly reason: string },
): void {
  recordWait(transaction, claim, 0);
  transaction.putClaim({ ...claim, ...end, ...noNotice, endedAt: transaction.now, waitingSince: null });
  const kind = end.state === "released" ? "ClaimReleased" : "ClaimFailed";
  transaction.addEvent(kind, `claim/${claim.name}`, end.reason);
  const allocation = transaction.allocation(claim.name);
  if (allocation !== undefined) {
    takeBack(transaction, facts, claim, allocation);
  }
}

/** Of a claim from which nothing will be taken, as far as is known. */
export const noNotice = { preemptAt: null, isNoticeFinal: false } as const;

/** What the next program is told of its devices is not known yet. */
const asleep = { state: "dormant", waitingSince: null, toldModels: [], toldHost: "" } as const;

/** Lets a lazy claim hold nothing and ask for nothing, until a program of it calls its devices. */
export function sleepClaim(transaction: Transaction, facts: Facts, claim: ClaimRecord, reason: string): void {
  recordWait(transaction, claim, 0);
  transaction.putClaim({ ...claim, ...asleep, ...noNotice, reason });
  transaction.addEvent("ClaimDormant", `claim/${claim.name}`, reason);
  const allocation = transaction.allocation(claim.name);
  if (allocation !== undefined) {
    takeBack(transaction, facts, claim, allocation);
  }
}

/**
 * Puts a bound claim into the queue again, at its old place; a lazy one waits there when a program of it needs it again.
 * One that belongs to a process ends instead: there is nobody to begin again.
 */
export function requeueClaim(
  transaction: Transaction,
  facts: Facts,
  claim: ClaimRecord,
  reason: string,
): void {
  if (claim.isSessionBound) {
    endClaim(transaction, facts, claim, { state: "failed", reason });
    return;
  }
  const allocation = transaction.allocation(claim.name);
  transaction.putClaim({
    ...claim,
    ...(claim.isLazy
      ? { ...asleep, reason }
      : ({ state: "pending", reason: "", waitingSince: transaction.now } as const)),
    ...noNotice,
    requeues: claim.requeues + 1,
  });
  transaction.addEvent("ClaimRequeued", `claim/${claim.name}`, reason);
  if (allocation !== undefined) {
    takeBack(transaction, facts, claim, allocation);
  }
}

export interface Notice {
  readonly at: number;
  readonly reason: string;
  /** Whether the claim ends then, and does not wait again. */
  readonly isFinal: boolean;
}

/** Tells a bound claim that what it holds will be taken. */
export function giveNotice(
  transaction: Transaction,
  claim: ClaimRecord,
  { at, reason, isFinal }: Notice,
): void {
  if (claim.preemptAt !== null && claim.preemptAt <= at) {
    return;
  }
  transaction.putClaim({ ...claim, preemptAt: at, isNoticeFinal: isFinal, reason });
  const left = formatDuration(Math.max(0, at - transaction.now));
  const what = isFinal ? "it ends" : "what it holds is taken back";
  transaction.addEvent("ClaimPreempting", `claim/${claim.name}`, `${what} in ${left}: ${reason}`);
}

/** Takes what was announced. */
export function concludeNotice(transaction: Transaction, facts: Facts, claim: ClaimRecord): void {
  const { reason } = claim;
  if (claim.isNoticeFinal) {
    endClaim(transaction, facts, claim, { state: "released", reason });
  } else {
    requeueClaim(transaction, facts, claim, reason);
  }
}

/** Notes how long a claim waited, for what it got or might have got. */
export function recordWait(transaction: Transaction, claim: ClaimRecord, gpuMilli: number): void {
  const { name, tenant, queue, waitingSince } = claim;
  if (waitingSince !== null && waitingSince < transaction.now) {
    transaction.usage.push({
      kind: "waited",
      claim: name,
      tenant,
      queue,
      gpuMilli: gpuMilli === 0 ? askedGpuMilli(claim) : gpuMilli,
      beganAt: waitingSince,
      endedAt: transaction.now,
      activeSeconds: 0,
    });
  }
}

/** Thousandths of a device that a claim asks for, as far as that does not depend on the device. */
export function askedGpuMilli({ gpus, memoryBytes, memoryPercent, computePercent }: ClaimRecord): number {
  const share = memoryBytes > 0n ? computePercent : Math.max(memoryPercent || 100, computePercent);
  return gpus * share * 10;
}

function takeBack(
  transaction: Transaction,
  facts: Facts,
  claim: ClaimRecord,
  allocation: AllocationRecord,
): void {
  recordHeld(transaction, facts, claim, allocation);
  if (facts.mayHaveSessions(allocation.epoch)) {
    transaction.putAllocation({ ...allocation, releasedRevision: transaction.revision, resizing: null });
  } else {
    transaction.removeAllocation(allocation);
  }
}

/** Notes what a claim has held since it was granted, or got its size. */
export function recordHeld(
  transaction: Transaction,
  facts: Facts,
  { name, tenant, queue }: ClaimRecord,
  allocation: AllocationRecord,
): void {
  const { epoch, grantedAt } = allocation;
  const node = transaction.node(allocation.node);
  if (grantedAt < transaction.now) {
    transaction.usage.push({
      kind: "held",
      claim: name,
      tenant,
      queue,
      gpuMilli: amountOn(node, toStatement(allocation, node)).gpuMilli,
      beganAt: grantedAt,
      endedAt: transaction.now,
      activeSeconds: Math.min(facts.activeSeconds(epoch), transaction.now - grantedAt),
    });
  }
}
