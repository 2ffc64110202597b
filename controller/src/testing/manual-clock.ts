// SPDX-License-Identifier: Apache-2.0

import type { CancelTimer, Clock } from "../timers/clock.ts";

interface Timer {
  readonly dueMs: number;
  readonly callback: () => void;
}

/** A clock for tests that stands still until it is advanced. */
export class ManualClock implements Clock {
  #nowMs = 0;
  #startUnixMs: number;
  readonly #timers = new Set<Timer>();

  constructor(startUnixMs = 1_790_000_000_000) {
    this.#startUnixMs = startUnixMs;
  }

  unixMs(): number {
    return this.#startUnixMs + this.#nowMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, callback: () => void): CancelTimer {
    const timer = { dueMs: this.#nowMs + delayMs, callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Sets the wall clock forward or back without letting time pass. */
  set(seconds: number): void {
    this.#startUnixMs += seconds * 1000;
  }

  /** Number of timers that are set. */
  get timers(): number {
    return this.#timers.size;
  }

  /** Advances the clock, and runs the timers that become due, in order. */
  advance(ms: number): void {
    const end = this.#nowMs + ms;
    for (;;) {
      const next = [...this.#timers].filter(({ dueMs }) => dueMs <= end).sort((a, b) => a.dueMs - b.dueMs)[0];
      if (next === undefined) {
        break;
      }
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.dueMs);
      next.callback();
    }
    this.#nowMs = end;
  }
}
