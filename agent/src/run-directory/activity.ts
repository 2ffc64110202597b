// SPDX-License-Identifier: Apache-2.0

import type { Logger } from "pino";
import { isDiskFull } from "../process/error-text.ts";
import type { RunDirectory } from "./run-directory.ts";

/** The most time that counts between two consecutive reports of a worker. */
const longestStretchMs = 5_000;

/** An interval on the monotonic clock. */
interface Stretch {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Measures for how long the sessions of each allocation, past ones included, have made calls on this node, by epoch. Time
 * in which several of them made calls counts once. The agent keeps the totals, so a new controller continues from them.
 */
export class Activity {
  readonly #run: Pick<RunDirectory, "activity" | "keepActivity" | "forgetActivity">;
  readonly #log: Logger;
  readonly #totalsMs: Map<number, number>;
  /** The totals as written to disk, in whole milliseconds. */
  readonly #keptMs: Map<number, number>;
  /** The time up to which each allocation has been counted. */
  readonly #countedUntilMs = new Map<number, number>();
  /** Allocations whose total differs from the one on disk. */
  readonly #changed = new Set<number>();
  #hasRoom = true;

  constructor(run: Pick<RunDirectory, "activity" | "keepActivity" | "forgetActivity">, log: Logger) {
    this.#run = run;
    this.#log = log;
    this.#keptMs = new Map(run.activity());
    this.#totalsMs = new Map(this.#keptMs);
  }

  /** Adds an interval in which a session of the allocation made calls. */
  add(epoch: number, { fromMs, toMs }: Stretch): void {
    const startMs = Math.max(fromMs, toMs - longestStretchMs, this.#countedUntilMs.get(epoch) ?? fromMs);
    if (toMs <= startMs) return;
    this.#countedUntilMs.set(epoch, toMs);
    this.#totalsMs.set(epoch, (this.#totalsMs.get(epoch) ?? 0) + (toMs - startMs));
    this.#changed.add(epoch);
  }

  /** Returns the totals in whole milliseconds. They are on disk before they are reported, so that reports never decrease. */
  totals(): readonly { readonly epoch: number; readonly activeMs: number }[] {
    const changed = [...this.#changed].map(
      (epoch) => [epoch, Math.floor(this.#totalsMs.get(epoch) ?? 0)] as const,
    );
    if (changed.length > 0 && this.#write(() => this.#run.keepActivity(changed))) {
      for (const [epoch, totalMs] of changed) this.#keptMs.set(epoch, totalMs);
      this.#changed.clear();
    }
    return Array.from(this.#keptMs, ([epoch, activeMs]) => ({ epoch, activeMs }));
  }

  /** Forgets all allocations but these. */
  keepOnly(epochs: ReadonlySet<number>): void {
    const known = new Set([...this.#totalsMs.keys(), ...this.#keptMs.keys()]);
    const gone = [...known].filter((epoch) => !epochs.has(epoch));
    // An epoch is never reused: a row that cannot be removed now has no meaning, and is removed after the agent's next
    // start.
    if (gone.length > 0) this.#write(() => this.#run.forgetActivity(gone));
    for (const epoch of gone) {
      this.#totalsMs.delete(epoch);
      this.#keptMs.delete(epoch);
      this.#countedUntilMs.delete(epoch);
      this.#changed.delete(epoch);
    }
  }

  /** @returns False if the disk is full: the node must not look lost because of that, so the next call tries again. */
  #write(write: () => void): boolean {
    try {
      write();
      this.#hasRoom = true;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      if (this.#hasRoom)
        this.#log.warn({ err: error }, "the disk is full: usage is reported once it can be recorded");
      this.#hasRoom = false;
    }
    return this.#hasRoom;
  }
}
