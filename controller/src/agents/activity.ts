// SPDX-License-Identifier: Apache-2.0

import type { Clock } from "../timers/clock.ts";
import type { ActivityFacts, SessionFacts } from "../domain/agent-report.ts";
import type { AllocationRecord } from "../domain/records.ts";

interface Seen {
  /** When counting began, in Unix seconds; another date restarts the count. */
  since: number;
  /**
   * On the monotonic clock: when the last call was made, the claim was bound or the controller started, whichever is
   * latest.
   */
  lastMs: number;
  /** Calls of its sessions as last reported. */
  commands: bigint;
  /** Active time counted by the agent since the allocation began. */
  countedMs: number;
  activeMs: number;
}

/**
 * When, and for how long, the sessions of allocations made calls, by epoch. Agents count; this adds up the
 * activity since the allocation got its size, and since the last record.
 */
export class Activity {
  readonly #clock: Clock;
  readonly #seen = new Map<number, Seen>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Continues from the recorded values, or from zero if the allocation has another date. */
  begin({
    epoch,
    grantedAt,
    activeSeconds,
    countedMs,
  }: Pick<AllocationRecord, "epoch" | "grantedAt" | "activeSeconds" | "countedMs">): void {
    const seen = this.#seen.get(epoch) ?? {
      since: grantedAt,
      lastMs: this.#clock.monotonicMs(),
      commands: 0n,
      countedMs,
      activeMs: activeSeconds * 1000,
    };
    this.#seen.set(epoch, seen);
    if (seen.since !== grantedAt) {
      seen.since = grantedAt;
      // Time counted since the resize belongs to the new size.
      seen.activeMs = Math.max(0, seen.countedMs - countedMs);
    }
  }

  forget(epoch: number): void {
    this.#seen.delete(epoch);
  }

  /** Applies a node's report about its sessions. */
  observe(sessions: readonly Pick<SessionFacts, "epoch" | "commands">[]): void {
    const totals = new Map<number, bigint>();
    for (const { epoch, commands } of sessions) {
      totals.set(epoch, (totals.get(epoch) ?? 0n) + commands);
    }
    for (const [epoch, commands] of totals) {
      const seen = this.#seen.get(epoch);
      if (seen === undefined) {
        continue;
      }
      // Fewer calls than before: a session has ended.
      if (commands > seen.commands) {
        seen.lastMs = this.#clock.monotonicMs();
      }
      seen.commands = commands;
    }
  }

  /** Applies the counters of a node's agent. */
  count(activity: readonly ActivityFacts[]): void {
    for (const { epoch, countedMs } of activity) {
      const seen = this.#seen.get(epoch);
      if (seen !== undefined) {
        // Less than before: the agent has lost its records and counts from this value.
        seen.activeMs += Math.max(0, countedMs - seen.countedMs);
        seen.countedMs = countedMs;
      }
    }
  }

  get byEpoch(): ReadonlyMap<number, Readonly<Seen>> {
    return this.#seen;
  }

  /** The values to record: whole seconds, and the agent's count at that moment. */
  record(epoch: number): Pick<AllocationRecord, "activeSeconds" | "countedMs"> {
    const { activeMs, countedMs } = this.#seen.get(epoch) ?? { activeMs: 0, countedMs: 0 };
    return {
      activeSeconds: Math.floor(activeMs / 1000),
      countedMs: Math.max(0, countedMs - (activeMs % 1000)),
    };
  }
}
