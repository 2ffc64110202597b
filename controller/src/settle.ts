// SPDX-License-Identifier: Apache-2.0

// What follows from the state of the pool, at the end of every transaction: claims that end, devices that become free,
// waiting claims that are bound.

import { formatDuration } from "@millpond/api";
import { type QueueDecision, planQueues } from "@millpond/scheduler";
import { bind } from "./binding.ts";
import {
  concludeNotice,
  endClaim,
  giveNotice,
  nodeLossAfterSeconds,
  requeueClaim,
  sleepClaim,
} from "./endings.ts";
import type { HoldingsByNode } from "./holdings.ts";
import type { Transaction } from "./transaction.ts";
import type { Picture } from "./picture.ts";
import type { SessionFacts } from "./report.ts";
import { concludeResize } from "./resize.ts";
import { toQueueSnapshot } from "./queue-snapshot.ts";
import type { AllocationRecord, ClaimRecord } from "./store/store.ts";

/** What is known of the moment, and is not in the ledger. */
export interface Facts {
  readonly picture: Picture;
  readonly holdings: HoldingsByNode;
  isLeaseExpired(claim: string): boolean;
  /** Whether a program needs the devices of a lazy claim, and has no ticket yet. */
  isWanted(claim: string): boolean;
  /** The sessions of the allocation that its node last reported. */
  sessions(allocation: AllocationRecord): readonly SessionFacts[];
  /** Whether a session of the allocation is open, or may be opened, or is not known. */
  mayBeInUse(allocation: AllocationRecord): boolean;
  /** Number of sessions of the allocation that its node last reported. */
  openSessions(allocation: AllocationRecord): number;
  /** Number of those that have a client. */
  servedSessions(allocation: AllocationRecord): number;
  /** Whether an agent ever told this process of a client of the allocation. */
  hasBeenServed(epoch: number): boolean;
  /** Whether a ticket may have been issued for the allocation. */
  mayHaveSessions(epoch: number): boolean;
  isNodeReady(node: string): boolean;
  /** Since when nothing was heard of a node that is not ready, or since the controller started. */
  silentSeconds(node: string): number;
  /** Since when one of its devices has been ill or missing; 0: none is. */
  illSeconds(allocation: AllocationRecord): number;
  /** Whether the node's agent opens no session for an allocation any more that was taken back at this revision. */
  enforcesRelease(allocation: AllocationRecord, revision: number): boolean;
  /** Seconds since the last call of its sessions. */
  idleSeconds(epoch: number): number;
  /** Seconds in which its sessions made calls. */
  activeSeconds(epoch: number): number;
  /** What its agent has counted, milliseconds. */
  countedMs(epoch: number): number;
}

/** Which claims may have to end, beside those that the transaction touched. */
export interface Scope {
  /** Those of which the time has come. */
  readonly claims?: Iterable<string>;
  /** The claims on this node: its agent had news. */
  readonly node?: string;
}

/** How many claims that have ended are remembered. */
export const maxEndedClaims = 1000;

/** @returns What was decided about the waiting claims; undefined when none waits. */
export function settle(
  transaction: Transaction,
  facts: Facts,
  scopes: readonly Scope[],
): QueueDecision | undefined {
  for (const claim of claimsInScope(transaction, scopes)) {
    endIfDue(transaction, facts, claim);
  }
  freeDevices(transaction, facts);
  const decision = decide(transaction, facts);
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

function endIfDue(transaction: Transaction, facts: Facts, claim: ClaimRecord): void {
  const { name, state, leaseSeconds } = claim;
  if ((state === "pending" || state === "dormant") && facts.isLeaseExpired(name)) {
    const meanwhile = state === "pending" ? "while it waited" : "while it was dormant";
    const reason = `nobody renewed its lease of ${leaseSeconds} s ${meanwhile}`;
    endClaim(transaction, facts, claim, { state: "released", reason });
    return;
  }
  if (claim.isLazy && state === "pending" && !facts.isWanted(name)) {
    sleepClaim(transaction, facts, claim, "no program waits for its devices any more");
    return;
  }
  const allocation = state === "bound" ? transaction.allocation(name) : undefined;
  if (allocation === undefined) {
    return;
  }
  const reason = reasonToEnd(facts, claim, allocation) ?? timeLimitPassed(transaction, claim);
  if (reason !== undefined) {
    endClaim(transaction, facts, claim, { state: "released", reason });
    return;
  }
  if (claim.isLazy && !facts.isWanted(name) && !facts.mayBeInUse(allocation)) {
    sleepClaim(transaction, facts, claim, "no program of it uses its devices");
    return;
  }
  const lost = claim.nodeLoss === "keep" ? undefined : reasonOfLoss(facts, allocation);
  if (lost !== undefined) {
    if (claim.nodeLoss === "requeue") {
      requeueClaim(transaction, facts, claim, lost);
    } else {
      endClaim(transaction, facts, claim, { state: "failed", reason: lost });
    }
    return;
  }
  if (claim.preemptAt !== null && claim.preemptAt <= transaction.now) {
    concludeNotice(transaction, facts, claim);
    return;
  }
  concludeResize(transaction, facts, claim, allocation);
  giveNoticeOfLimits(transaction, transaction.claim(name) ?? claim, facts.idleSeconds(allocation.epoch));
}

function reasonToEnd(facts: Facts, claim: ClaimRecord, allocation: AllocationRecord): string | undefined {
  const { name, leaseSeconds, isSessionBound } = claim;
  const { node, epoch } = allocation;
  const isReady = facts.isNodeReady(node);
  // A session without a client is one that its client gave up for the one that has ended.
  if (isReady && isSessionBound && facts.hasBeenServed(epoch) && facts.servedSessions(allocation) === 0) {
    return "its session has ended";
  }
  if (facts.openSessions(allocation) > 0) {
    return undefined;
  }
  // While the node is lost nobody knows whether a session is open, so the claim stays.
  if (facts.isLeaseExpired(name) && (isReady || !facts.mayHaveSessions(epoch))) {
    return `nobody renewed its lease of ${leaseSeconds} s and no session of it is open`;
  }
  return undefined;
}

/** Why a claim has lost what it holds; undefined: it has not. */
function reasonOfLoss(facts: Facts, allocation: AllocationRecord): string | undefined {
  const { node } = allocation;
  if (!facts.isNodeReady(node)) {
    return facts.silentSeconds(node) >= nodeLossAfterSeconds
      ? `its node ${node} was lost: no word from its agent for ${nodeLossAfterSeconds} s`
      : undefined;
  }
  return facts.illSeconds(allocation) >= nodeLossAfterSeconds
    ? `a device of it on node ${node} was lost: unhealthy for ${nodeLossAfterSeconds} s`
    : undefined;
}

function timeLimitPassed(
  transaction: Transaction,
  { boundAt, timeLimitSeconds }: ClaimRecord,
): string | undefined {
  return timeLimitSeconds > 0 && transaction.now >= (boundAt ?? 0) + timeLimitSeconds
    ? `its time limit of ${formatDuration(timeLimitSeconds)} is over`
    : undefined;
}

/** The end of a time is known before; that a claim is idle only once it has been. */
function giveNoticeOfLimits(transaction: Transaction, claim: ClaimRecord, idleSeconds: number): void {
  const { boundAt, timeLimitSeconds, idleLimitSeconds, graceSeconds } = claim;
  const { now } = transaction;
  const end = (boundAt ?? 0) + timeLimitSeconds;
  if (timeLimitSeconds > 0 && now >= end - graceSeconds) {
    const reason = `its time limit of ${formatDuration(timeLimitSeconds)} ends`;
    giveNotice(transaction, claim, { at: end, reason, isFinal: true });
  }
  if (
    idleLimitSeconds > 0 &&
    idleSeconds >= idleLimitSeconds &&
    transaction.claim(claim.name)?.preemptAt === null
  ) {
    const reason = `no call was made to its devices for ${formatDuration(idleLimitSeconds)}, its idle limit`;
    giveNotice(transaction, claim, { at: now + graceSeconds, reason, isFinal: true });
  }
}

function freeDevices(transaction: Transaction, facts: Facts): void {
  for (const allocation of transaction.allocations.releasing()) {
    const { releasedRevision } = allocation;
    if (
      releasedRevision !== null &&
      facts.enforcesRelease(allocation, releasedRevision) &&
      facts.openSessions(allocation) === 0
    ) {
      transaction.removeAllocation(allocation);
    }
  }
}

function decide(transaction: Transaction, facts: Facts): QueueDecision | undefined {
  const waiting = transaction.pendingClaims();
  if (waiting.length === 0) {
    return undefined;
  }
  const decision = planQueues(toQueueSnapshot(transaction, facts));
  for (const statement of decision.grants) {
    bind(transaction, statement);
  }
  for (const { claim, reason } of decision.preemptions) {
    const record = transaction.claim(claim);
    if (record !== undefined) {
      giveNotice(transaction, record, { at: transaction.now + record.graceSeconds, reason, isFinal: false });
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
