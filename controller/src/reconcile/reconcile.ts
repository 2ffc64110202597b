// SPDX-License-Identifier: Apache-2.0

// Reconciles the pool at the end of every transaction: ends claims, frees devices, binds waiting claims.

import { type Reason, reason } from "@millpond/api";
import { type QueueDecision, planQueues } from "@millpond/scheduler";
import { bind } from "./binding.ts";
import {
  concludeNotice,
  endClaim,
  giveNotice,
  limitNoticeAt,
  nodeLossAfterSeconds,
  requeueClaim,
  sleepClaim,
} from "./claim-lifecycle.ts";
import {
  enforcesRevision,
  idleSeconds,
  isRecovering,
  illSeconds,
  isLeaseExpired,
  isNodeReady,
  isWanted,
  mayBeInUse,
  type ObservedState,
  openSessions,
  servedSessions,
  silentSeconds,
} from "../domain/observed-state.ts";
import type { ReconcileContext } from "./reconcile-context.ts";
import type { Transaction } from "../state/transaction.ts";
import type { AllocationRecord, ClaimRecord } from "../domain/records.ts";
import { concludeResize } from "./resize.ts";

/** Claims that may have to end, in addition to those that the transaction touched. */
export interface Scope {
  /** Claims with a timer that has expired. */
  readonly claims?: Iterable<string>;
  /** Only the claims on this node, whose agent has sent a report. */
  readonly node?: string;
}

/** The number of ended claims that are kept. */
export const maxEndedClaims = 1000;

/** @returns the decision about the waiting claims; undefined when none waits */
export function reconcile(
  transaction: Transaction,
  context: ReconcileContext,
  scopes: readonly Scope[],
): QueueDecision | undefined {
  for (const claim of claimsInScope(transaction, scopes)) {
    endIfDue(transaction, context, claim);
  }
  freeDevices(transaction, context.observed);
  const decision = decide(transaction, context);
  forgetEnded(transaction);
  return decision;
}

function claimsInScope(transaction: Transaction, scopes: readonly Scope[]): ClaimRecord[] {
  const names = new Set(transaction.claims.keys());
  for (const { claims = [], node } of scopes) {
    for (const name of claims) {
      names.add(name);
    }
    for (const { claim } of node === undefined ? [] : transaction.allocations.onNode(node)) {
      names.add(claim);
    }
  }
  return [...names].map((name) => transaction.claim(name)).filter((claim) => claim !== undefined);
}

function endIfDue(transaction: Transaction, context: ReconcileContext, claim: ClaimRecord): void {
  const { observed } = context;
  const { name, state, leaseSeconds } = claim;
  if ((state === "pending" || state === "dormant") && isLeaseExpired(observed, name)) {
    const code = state === "pending" ? "lease-expired-pending" : "lease-expired-dormant";
    endClaim(transaction, observed, claim, { state: "released", reason: reason(code, { leaseSeconds }) });
    return;
  }
  if (claim.isLazy && state === "pending" && !isWanted(observed, name)) {
    sleepClaim(transaction, observed, claim, reason("program-gone"));
    return;
  }
  const allocation = state === "bound" ? transaction.allocation(name) : undefined;
  if (allocation === undefined) {
    return;
  }
  const over = reasonToEnd(observed, claim, allocation) ?? timeLimitPassed(transaction, claim);
  if (over !== undefined) {
    endClaim(transaction, observed, claim, { state: "released", reason: over });
    return;
  }
  if (claim.isLazy && !isWanted(observed, name) && !mayBeInUse(observed, allocation)) {
    sleepClaim(transaction, observed, claim, reason("devices-unused"));
    return;
  }
  const lost = claim.nodeLoss === "keep" ? undefined : reasonOfLoss(observed, allocation);
  if (lost !== undefined) {
    if (claim.nodeLoss === "requeue") {
      requeueClaim(transaction, observed, claim, lost);
    } else {
      endClaim(transaction, observed, claim, { state: "failed", reason: lost });
    }
    return;
  }
  if (claim.preemptAt !== null && claim.preemptAt <= transaction.now) {
    concludeNotice(transaction, observed, claim);
    return;
  }
  concludeResize(transaction, context, claim, allocation);
  giveNoticeOfLimits(transaction, transaction.claim(name) ?? claim, idleSeconds(observed, allocation.epoch));
}

function reasonToEnd(
  observed: ObservedState,
  claim: ClaimRecord,
  allocation: AllocationRecord,
): Reason | undefined {
  const { name, leaseSeconds, isSessionBound } = claim;
  const { node, epoch } = allocation;
  const isReady = isNodeReady(observed, node);
  // A session without a client: the client abandoned it in favour of the one that has ended.
  if (isReady && isSessionBound && observed.served.has(epoch) && servedSessions(observed, allocation) === 0) {
    return reason("session-ended");
  }
  if (openSessions(observed, allocation) > 0) {
    return undefined;
  }
  // While the node is lost, open sessions are unknown, so the claim stays.
  if (isLeaseExpired(observed, name) && (isReady || !observed.ticketed.has(epoch))) {
    return reason("lease-expired-unused", { leaseSeconds });
  }
  return undefined;
}

/** Why a claim has lost its allocation; undefined: it has not. */
function reasonOfLoss(observed: ObservedState, allocation: AllocationRecord): Reason | undefined {
  const { node } = allocation;
  if (!isNodeReady(observed, node)) {
    return silentSeconds(observed, node) >= nodeLossAfterSeconds
      ? reason("node-lost", { node, seconds: nodeLossAfterSeconds })
      : undefined;
  }
  return illSeconds(observed, allocation) >= nodeLossAfterSeconds
    ? reason("device-lost", { node, seconds: nodeLossAfterSeconds })
    : undefined;
}

function timeLimitPassed(
  transaction: Transaction,
  { boundAt, timeLimitSeconds }: ClaimRecord,
): Reason | undefined {
  return timeLimitSeconds > 0 && transaction.now >= (boundAt ?? 0) + timeLimitSeconds
    ? reason("time-limit-over", { limitSeconds: timeLimitSeconds })
    : undefined;
}

/** The end of a time limit is known in advance; the end of idleness only afterwards. */
function giveNoticeOfLimits(transaction: Transaction, claim: ClaimRecord, idleFor: number): void {
  const { boundAt, timeLimitSeconds, idleLimitSeconds, graceSeconds } = claim;
  const { now } = transaction;
  if (timeLimitSeconds > 0 && now >= limitNoticeAt(claim)) {
    const end = (boundAt ?? 0) + timeLimitSeconds;
    const why = reason("time-limit-ends", { limitSeconds: timeLimitSeconds });
    giveNotice(transaction, claim, { at: end, reason: why, isFinal: true });
  }
  if (
    idleLimitSeconds > 0 &&
    idleFor >= idleLimitSeconds &&
    transaction.claim(claim.name)?.preemptAt === null
  ) {
    const why = reason("idle-limit", { limitSeconds: idleLimitSeconds });
    giveNotice(transaction, claim, { at: now + graceSeconds, reason: why, isFinal: true });
  }
}

function freeDevices(transaction: Transaction, observed: ObservedState): void {
  for (const allocation of transaction.allocations.releasing()) {
    const { releasedRevision } = allocation;
    if (
      releasedRevision !== null &&
      enforcesRevision(observed, allocation.node, releasedRevision) &&
      openSessions(observed, allocation) === 0
    ) {
      transaction.removeAllocation(allocation);
    }
  }
}

function decide(transaction: Transaction, context: ReconcileContext): QueueDecision | undefined {
  const waiting = transaction.pendingClaims();
  if (waiting.length === 0 || isRecovering(context.observed)) {
    return undefined;
  }
  const decision = planQueues(context.scheduler.queueSnapshot(transaction, context.observed));
  for (const statement of decision.grants) {
    bind(transaction, statement);
  }
  for (const { claim, reason: why } of decision.preemptions) {
    const record = transaction.claim(claim);
    if (record !== undefined) {
      const at = transaction.now + record.graceSeconds;
      giveNotice(transaction, record, { at, reason: why, isFinal: false });
    }
  }
  return decision;
}

function forgetEnded(transaction: Transaction): void {
  if (![...transaction.claims.values()].some((claim) => claim !== null && claim.endedAt !== null)) {
    return;
  }
  for (const name of transaction.endedClaimsBefore(maxEndedClaims)) {
    transaction.forgetClaim(name);
  }
}
