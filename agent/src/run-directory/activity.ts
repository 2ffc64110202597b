// SPDX-License-Identifier: Apache-2.0

import type { Logger } from "pino";
import { isDiskFull } from "../process/error-text.ts";
import type { RunDirectory } from "./run-directory.ts";

/** Between two words of a worker that both told of calls, no more than so much time counts. */
const longestStretchMs = 5_000;

/** A stretch of time, on the monotonic clock. */
interface Stretch {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * For how long the sessions of each allocation have made calls, all that there ever were on this node, by epoch. Time in
 * which several of them did counts once. Controllers come and go, and go on from what they are told here.
 */
export class Activity {
  readonly #run: Pick<RunDirectory, "activity" | "keepActivity" | "forgetActivity">;
  readonly #log: Logger;
  readonly #totalsMs: Map<number, number>;
  /** As they are written down: whole milliseconds. */
  readonly #keptMs: Map<number, number>;
  /** Until when the time has been counted. */
  readonly #countedUntilMs = new Map<number, number>();
  /** Those that are not written down as they are. */
  readonly #changed = new Set<number>();
  #hasRoom = true;

  constructor(run: Pick<RunDirectory, "activity" | "keepActivity" | "forgetActivity">, log: Logger) {
    this.#run = run;
    this.#log = log;
    this.#keptMs = new Map(run.activity());
    this.#totalsMs = new Map(this.#keptMs);
  }

  /** A session of the allocation has made calls meanwhile. */
  add(epoch: number, { fromMs, toMs }: Stretch): void {
    const startMs = Math.max(fromMs, toMs - longestStretchMs, this.#countedUntilMs.get(epoch) ?? fromMs);
    if (toMs <= startMs) return;
    this.#countedUntilMs.set(epoch, toMs);
    this.#totalsMs.set(epoch, (this.#totalsMs.get(epoch) ?? 0) + (toMs - startMs));
    this.#changed.add(epoch);
  }

  /** Whole milliseconds. Written down before it is told, so that what is told never goes back. */
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
    // An epoch is never given again: what cannot be removed now is without meaning, and goes when the agent starts anew.
    if (gone.length > 0) this.#write(() => this.#run.forgetActivity(gone));
    for (const epoch of gone) {
      this.#totalsMs.delete(epoch);
      this.#keptMs.delete(epoch);
      this.#countedUntilMs.delete(epoch);
      this.#changed.delete(epoch);
    }
  }

  /** @returns False where the disk has no room: a node shall not look lost for that, and it is tried again. */
  #write(write: () => void): boolean {
    try {
      write();
      this.#hasRoom = true;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      if (this.#hasRoom)
        this.#log.warn({ err: error }, "what claims use is told when there is room to write it down");
      this.#hasRoom = false;
    }
    return this.#hasRoom;
  }
}
