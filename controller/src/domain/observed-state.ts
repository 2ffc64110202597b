// SPDX-License-Identifier: Apache-2.0

// The latest reports of agents and clients, as plain values: the part of the state that is in no store. Reconciling is a
// function of it and of a transaction. Times with the suffix `Ms` are on the monotonic clock.

import type { SessionFacts } from "./agent-report.ts";
import type { AllocationRecord } from "./records.ts";

export interface ObservedLease {
  readonly deadlineMs: number;
  /** Number of calls that wait on the claim; the lease does not expire while there is one. */
  readonly holds: number;
}

export interface ObservedNode {
  /** Whether heartbeats of its agent arrive. */
  readonly isReady: boolean;
  readonly lastContactMs: number;
  /** The revision that its agent enforces; 0: unknown. */
  readonly knownRevision: number;
  /** Since when its devices are unhealthy or missing, by UUID. */
  readonly illSinceMs: ReadonlyMap<string, number>;
  /** As last reported, also of a node that is not ready. */
  readonly sessions: ReadonlyMap<string, SessionFacts>;
}

export interface ObservedActivity {
  /** The last call of its sessions, or when the claim was bound, or when the controller started. */
  readonly lastMs: number;
  /** Milliseconds in which its sessions made calls. */
  readonly activeMs: number;
  /** Milliseconds counted by its agent. */
  readonly countedMs: number;
}

export interface ObservedTicket {
  readonly epoch: number;
  readonly expiresMs: number;
}

/** Valid until the event loop turns: its maps are the ones that calls update. */
export interface ObservedState {
  readonly nowMs: number;
  /** Since when this process listens to agents. */
  readonly listeningSinceMs: number;
  /** Nothing is granted before: agents report allocations that the restored state lacks. */
  readonly gatheringUntilMs: number;
  /** Leases of claims, by name; an absent one has expired. */
  readonly leases: ReadonlyMap<string, ObservedLease>;
  /** Lazy claims that a program waits for and that have no ticket yet; leases by name. */
  readonly wakes: ReadonlyMap<string, ObservedLease>;
  /** By name; absent: its agent has not called since the controller started. */
  readonly nodes: ReadonlyMap<string, ObservedNode>;
  /** Epochs of the allocations for which an agent has reported a connected client. */
  readonly served: ReadonlySet<number>;
  /** Epochs of the allocations for which a ticket may have been issued. */
  readonly ticketed: ReadonlySet<number>;
  /** Tickets that have not opened a session, by session. */
  readonly tickets: ReadonlyMap<string, ObservedTicket>;
  /** The highest epoch for which an earlier leader may have issued tickets, and until when these can open a session. */
  readonly inherited: { readonly epoch: number; readonly untilMs: number };
  /** By epoch. */
  readonly activity: ReadonlyMap<number, ObservedActivity>;
}

export function isLeaseExpired({ leases, nowMs }: ObservedState, claim: string): boolean {
  return hasExpired(leases.get(claim), nowMs);
}

/** Whether a program needs the devices of a lazy claim and has no ticket yet. */
export function isWanted({ wakes, nowMs }: ObservedState, claim: string): boolean {
  return !hasExpired(wakes.get(claim), nowMs);
}

/** @param lease undefined: there is none */
export function hasExpired(lease: ObservedLease | undefined, nowMs: number): boolean {
  return lease === undefined || (lease.holds === 0 && lease.deadlineMs <= nowMs);
}

export function isNodeReady({ nodes }: Pick<ObservedState, "nodes">, node: string): boolean {
  return nodes.get(node)?.isReady ?? false;
}

/** Whether running allocations may still be unknown, because the state was restored. */
export function isRecovering({
  gatheringUntilMs,
  nowMs,
}: Pick<ObservedState, "gatheringUntilMs" | "nowMs">): boolean {
  return nowMs < gatheringUntilMs;
}

/** Seconds since the last heartbeat of a node, or since the controller started. */
export function silentSeconds({ nodes, nowMs, listeningSinceMs }: ObservedState, node: string): number {
  return (nowMs - (nodes.get(node)?.lastContactMs ?? listeningSinceMs)) / 1000;
}

/** Seconds since one of the allocation's devices became unhealthy or went missing; 0: none is known to be. */
export function illSeconds(
  { nodes, nowMs }: ObservedState,
  { node, devices }: Pick<AllocationRecord, "node" | "devices">,
): number {
  const illSinceMs = nodes.get(node)?.illSinceMs;
  const since = devices.map(({ uuid }) => illSinceMs?.get(uuid)).filter((ms) => ms !== undefined);
  return since.length === 0 ? 0 : (nowMs - Math.min(...since)) / 1000;
}

type Place = Pick<AllocationRecord, "node" | "epoch">;

/** The sessions of an allocation that its node last reported. */
export function sessionsOf({ nodes }: ObservedState, { node, epoch }: Place): readonly SessionFacts[] {
  return [...(nodes.get(node)?.sessions.values() ?? [])].filter((session) => session.epoch === epoch);
}

/** Number of sessions of an allocation that its node last reported. */
export function openSessions({ nodes }: Pick<ObservedState, "nodes">, { node, epoch }: Place): number {
  let count = 0;
  for (const session of nodes.get(node)?.sessions.values() ?? []) {
    count += session.epoch === epoch ? 1 : 0;
  }
  return count;
}

/** Number of those with a client. */
export function servedSessions({ nodes }: ObservedState, { node, epoch }: Place): number {
  let count = 0;
  for (const session of nodes.get(node)?.sessions.values() ?? []) {
    count += session.epoch === epoch && session.hasClient ? 1 : 0;
  }
  return count;
}

/** Until when a ticket that was issued for the allocation may open a session. */
export function openableUntilMs(
  { inherited, tickets }: Pick<ObservedState, "inherited" | "tickets">,
  epoch: number,
): number {
  let untilMs = epoch <= inherited.epoch ? inherited.untilMs : 0;
  for (const ticket of tickets.values()) {
    if (ticket.epoch === epoch) {
      untilMs = Math.max(untilMs, ticket.expiresMs);
    }
  }
  return untilMs;
}

/** Number of tickets for the allocation that may still open a session. */
export function unusedTickets({ tickets, nowMs }: ObservedState, allocation: number): number {
  let count = 0;
  for (const { epoch, expiresMs } of tickets.values()) {
    count += epoch === allocation && expiresMs > nowMs ? 1 : 0;
  }
  return count;
}

/** Whether a session of the allocation is open, may still be opened, or has an unknown state. */
export function mayBeInUse(observed: ObservedState, allocation: Place): boolean {
  return (
    observed.ticketed.has(allocation.epoch) &&
    (!isNodeReady(observed, allocation.node) ||
      openSessions(observed, allocation) > 0 ||
      openableUntilMs(observed, allocation.epoch) > observed.nowMs)
  );
}

/**
 * Whether the node's agent enforces a change of this revision: it obeys an answer of that revision or a later one, which is
 * newer than any ticket for the revoked allocation.
 */
export function enforcesRevision({ nodes }: ObservedState, node: string, revision: number): boolean {
  const observed = nodes.get(node);
  return observed !== undefined && observed.isReady && observed.knownRevision >= revision;
}

/** Seconds since the last call of the allocation's sessions; 0: unknown. */
export function idleSeconds({ activity, nowMs }: ObservedState, epoch: number): number {
  const seen = activity.get(epoch);
  return seen === undefined ? 0 : (nowMs - seen.lastMs) / 1000;
}

/** Whole seconds in which the allocation's sessions made calls. */
export function activeSeconds({ activity }: Pick<ObservedState, "activity">, epoch: number): number {
  return Math.floor((activity.get(epoch)?.activeMs ?? 0) / 1000);
}

/** Milliseconds counted by the node's agent for the allocation. */
export function countedMs({ activity }: Pick<ObservedState, "activity">, epoch: number): number {
  return activity.get(epoch)?.countedMs ?? 0;
}
