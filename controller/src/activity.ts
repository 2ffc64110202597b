// SPDX-License-Identifier: Apache-2.0

import type { Clock } from "./clock.ts";
import type { SessionFacts } from "./report.ts";
import type { AllocationRecord } from "./store/store.ts";

/** Between two reports that both told of calls, no more than so much time counts as active. */
const longestStretchMs = 5_000;

interface Seen {
  /** Since when what it does is counted, Unix seconds; another date begins anew. */
  since: number;
  /** On the monotonic clock: the last call, or when the claim was bound, or when the controller started. */
  lastMs: number;
  /** Calls of its sessions as last reported. */
  commands: bigint;
  reportedMs: number;
  activeMs: number;
}

/** When the sessions of allocations made calls, by epoch. In memory: of before a restart it has what was written down. */
export class Activity {
  readonly #clock: Clock;
  readonly #seen = new Map<number, Seen>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Begins to count, from nothing where it has counted since another date. */
  begin({
    epoch,
    grantedAt,
    activeSeconds,
  }: Pick<AllocationRecord, "epoch" | "grantedAt" | "activeSeconds">): void {
    const now = this.#clock.monotonicMs();
    const seen = this.#seen.get(epoch) ?? {
      since: grantedAt,
      lastMs: now,
      commands: 0n,
      reportedMs: now,
      activeMs: activeSeconds * 1000,
    };
    this.#seen.set(epoch, seen);
    if (seen.since !== grantedAt) {
      seen.since = grantedAt;
      seen.activeMs = 0;
    }
  }

  forget(epoch: number): void {
    this.#seen.delete(epoch);
  }

  /** Takes over what a node's agent says of its sessions. */
  observe(sessions: readonly Pick<SessionFacts, "epoch" | "commands">[]): void {
    const totals = new Map<number, bigint>();
    for (const { epoch, commands } of sessions) {
      totals.set(epoch, (totals.get(epoch) ?? 0n) + commands);
    }
    const now = this.#clock.monotonicMs();
    for (const [epoch, commands] of totals) {
      const seen = this.#seen.get(epoch);
      if (seen === undefined) {
        continue;
      }
      // Fewer than before: a session has ended.
      if (commands > seen.commands) {
        seen.lastMs = now;
        seen.activeMs += Math.min(longestStretchMs, now - seen.reportedMs);
      }
      seen.commands = commands;
      seen.reportedMs = now;
    }
  }

  /** Milliseconds since the last call. */
  idleMs(epoch: number): number {
    const seen = this.#seen.get(epoch);
    return seen === undefined ? 0 : this.#clock.monotonicMs() - seen.lastMs;
  }

  /** Whole seconds in which there were calls. */
  activeSeconds(epoch: number): number {
    return Math.floor((this.#seen.get(epoch)?.activeMs ?? 0) / 1000);
  }
}
