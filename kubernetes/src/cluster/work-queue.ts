// SPDX-License-Identifier: Apache-2.0

// A queue of keys to process: each is processed once, however often it is added, never twice at a time, and again after
// a delay when that failed.

import type { Logger } from "pino";

export interface WorkQueueOptions {
  /**
   * Processes one key. Resolves with the milliseconds after which to process it again; undefined: only when it is added
   * again.
   */
  readonly work: (key: string) => Promise<number | undefined>;
  /** The most keys processed at a time. Default 16. */
  readonly concurrency?: number;
  readonly log: Logger;
  /** Delay after the first failure, doubled each time. Default 250 ms. */
  readonly retryMs?: number;
  /** The longest delay. Default 30 s. */
  readonly longestRetryMs?: number;
}

export class WorkQueue {
  readonly #options: Required<WorkQueueOptions>;
  readonly #waiting = new Set<string>();
  readonly #underWay = new Map<string, Promise<void>>();
  /** Keys that were added while being processed. */
  readonly #again = new Set<string>();
  readonly #timers = new Map<string, { readonly timer: NodeJS.Timeout; readonly atMs: number }>();
  readonly #failures = new Map<string, number>();
  #isStopped = false;

  constructor(options: WorkQueueOptions) {
    this.#options = { concurrency: 16, retryMs: 250, longestRetryMs: 30_000, ...options };
  }

  /** Keys that wait or are being processed. */
  get length(): number {
    return this.#waiting.size + this.#underWay.size;
  }

  add(key: string): void {
    if (this.#isStopped) return;
    if (this.#underWay.has(key)) this.#again.add(key);
    else {
      this.#waiting.add(key);
      this.#startMore();
    }
  }

  /** The earliest of several times counts. */
  addAfter(key: string, ms: number): void {
    if (this.#isStopped) return;
    const atMs = performance.now() + ms;
    const planned = this.#timers.get(key);
    if (planned !== undefined) {
      if (planned.atMs <= atMs) return;
      clearTimeout(planned.timer);
    }
    const timer = setTimeout(() => {
      this.#timers.delete(key);
      this.add(key);
    }, ms);
    timer.unref();
    this.#timers.set(key, { timer, atMs });
  }

  /** Resolves when no work is in progress any more; waiting work is dropped. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#waiting.clear();
    for (const { timer } of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    await Promise.all(this.#underWay.values());
  }

  #startMore(): void {
    for (const key of this.#waiting) {
      if (this.#underWay.size >= this.#options.concurrency) return;
      this.#waiting.delete(key);
      this.#underWay.set(key, this.#look(key));
    }
  }

  async #look(key: string): Promise<void> {
    const { work, log, retryMs, longestRetryMs } = this.#options;
    // Not before `#underWay` knows it.
    await Promise.resolve();
    try {
      const afterMs = await work(key);
      this.#failures.delete(key);
      if (afterMs !== undefined) this.addAfter(key, afterMs);
    } catch (error) {
      const failures = (this.#failures.get(key) ?? 0) + 1;
      this.#failures.set(key, failures);
      const waitMs = Math.min(longestRetryMs, retryMs * 2 ** Math.min(20, failures - 1));
      log.warn({ err: error, key, waitMs }, "failed and will be retried");
      this.addAfter(key, waitMs * (0.5 + Math.random() / 2));
    } finally {
      this.#underWay.delete(key);
      if (this.#again.delete(key)) this.add(key);
      this.#startMore();
    }
  }
}
