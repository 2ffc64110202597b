// SPDX-License-Identifier: Apache-2.0

import type { Clock } from "./clock.ts";

/** Why a wait is over. */
export type Wake = "changed" | "timeout" | "aborted";

/** Calls that wait for a change of a named object. */
export class Watchers {
  readonly #clock: Clock;
  readonly #waiting = new Map<string, Set<(wake: Wake) => void>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Waits until `wake(name)`, until the timeout, or until one of the signals, whichever is first. */
  async wait(name: string, timeoutMs: number, ...signals: readonly AbortSignal[]): Promise<Wake> {
    if (signals.some(({ aborted }) => aborted)) {
      return "aborted";
    }
    if (timeoutMs <= 0) {
      return "timeout";
    }
    const { promise, resolve } = Promise.withResolvers<Wake>();
    const abort = () => resolve("aborted");
    const cancelTimer = this.#clock.after(timeoutMs, () => resolve("timeout"));
    const waiting = this.#waiting.get(name) ?? new Set();
    this.#waiting.set(name, waiting.add(resolve));
    for (const signal of signals) {
      signal.addEventListener("abort", abort, { once: true });
    }
    try {
      return await promise;
    } finally {
      cancelTimer();
      for (const signal of signals) {
        signal.removeEventListener("abort", abort);
      }
      waiting.delete(resolve);
      if (waiting.size === 0 && this.#waiting.get(name) === waiting) {
        this.#waiting.delete(name);
      }
    }
  }

  /** Wakes all calls that currently wait for it. */
  wake(name: string): void {
    for (const resolve of this.#waiting.get(name) ?? []) {
      resolve("changed");
    }
  }

  /** Number of names with waiting calls. */
  get size(): number {
    return this.#waiting.size;
  }
}
