// SPDX-License-Identifier: Apache-2.0

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
  readonly #totalsMs: Map<number, number>;
  /** Until when the time has been counted. */
  readonly #countedUntilMs = new Map<number, number>();
  /** Those that are not written down as they are. */
  readonly #changed = new Set<number>();

  constructor(run: Pick<RunDirectory, "activity" | "keepActivity" | "forgetActivity">) {
    this.#run = run;
    this.#totalsMs = new Map(run.activity());
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
    if (this.#changed.size > 0) {
      this.#run.keepActivity([...this.#changed].map((epoch) => [epoch, this.#totalMs(epoch)]));
      this.#changed.clear();
    }
    return [...this.#totalsMs.keys()].map((epoch) => ({ epoch, activeMs: this.#totalMs(epoch) }));
  }

  /** Forgets all allocations but these. */
  keepOnly(epochs: ReadonlySet<number>): void {
    const gone = [...this.#totalsMs.keys()].filter((epoch) => !epochs.has(epoch));
    for (const epoch of gone) {
      this.#totalsMs.delete(epoch);
      this.#countedUntilMs.delete(epoch);
      this.#changed.delete(epoch);
    }
    this.#run.forgetActivity(gone);
  }

  #totalMs(epoch: number): number {
    return Math.floor(this.#totalsMs.get(epoch) ?? 0);
  }
}
