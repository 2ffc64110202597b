// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import { errorCodeOf, type SyncResponse } from "@millpond/api";
import type { Logger } from "pino";
import { Backoff } from "../process/backoff.ts";
import { errorText } from "../process/error-text.ts";

export interface SyncLoopOptions {
  /** Makes one call with the node's present state. `sequence` grows with every call, from 1. */
  readonly call: (
    sequence: number,
    signal: AbortSignal,
    options: { readonly isLast: boolean },
  ) => Promise<SyncResponse>;
  /** Applies an answer. Answers come in the order of their calls; an answer that was overtaken is dropped. */
  readonly apply: (answer: SyncResponse) => void;
  /** The node is no longer in the pool; the reason says why. Called again with every call. */
  readonly onRemoved: (reason: string) => void;
  /** Time after which a call is abandoned. The controller holds a call for 2 s at most. */
  readonly callTimeoutMs: number;
  /** The longest wait after a failure. */
  readonly retryCeilingMs: number;
  readonly log: Logger;
}

/** Changes within this time share one call. */
const gatherMs = 10;
const maxCallsInFlight = 2;

/**
 * Reports to the controller and passes on the desired state in its answers, for as long as the agent runs, even while
 * the controller does not answer.
 */
export class SyncLoop {
  readonly #options: SyncLoopOptions;
  readonly #stop = new AbortController();
  readonly #backoff: Backoff;
  readonly #inFlight = new Set<Promise<void>>();
  #announce: () => void = () => undefined;
  #hasNews = false;
  #calls = 0;
  #lastApplied = 0;
  #retryDelayMs = 0;
  #lastSuccess: Date | undefined;
  #failure: string | undefined;
  #running: Promise<void> | undefined;

  constructor(options: SyncLoopOptions) {
    this.#options = options;
    this.#backoff = new Backoff({ firstMs: 100, ceilingMs: options.retryCeilingMs });
  }

  /** When the controller last answered. */
  get lastSuccess(): Date | undefined {
    return this.#lastSuccess;
  }

  /** Why it does not answer at present. */
  get failure(): string | undefined {
    return this.#failure;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Reports soon, instead of when the call in progress returns. */
  news(): void {
    this.#hasNews = true;
    this.#announce();
  }

  /** Ends the loop after a last report, which takes at most `lastReportMs`. */
  async stop(options: { readonly lastReportMs: number }): Promise<void> {
    this.#stop.abort();
    await this.#running;
    if (this.#failure !== undefined || this.#lastSuccess === undefined) return;
    try {
      this.#calls += 1;
      await this.#options.call(this.#calls, AbortSignal.timeout(options.lastReportMs), { isLast: true });
    } catch (error) {
      this.#options.log.info({ reason: errorText(error) }, "the controller did not accept the last report");
    }
  }

  async #run(): Promise<void> {
    const stopped = this.#stop.signal;
    while (!stopped.aborted) {
      this.#hasNews = false;
      const announced = new Promise<void>((resolve) => {
        this.#announce = resolve;
      });
      const failuresBefore = this.#backoff.failures;
      const call = this.#callOnce();
      this.#inFlight.add(call);
      void call.finally(() => this.#inFlight.delete(call));
      await Promise.race([call, announced]);
      if (this.#backoff.failures > failuresBefore) {
        await pause(this.#retryDelayMs, stopped);
      } else if (this.#hasNews) {
        await pause(gatherMs, stopped);
        if (this.#inFlight.size >= maxCallsInFlight) await Promise.race(this.#inFlight);
      }
    }
    await Promise.all(this.#inFlight);
  }

  async #callOnce(): Promise<void> {
    this.#calls += 1;
    const number = this.#calls;
    try {
      const answer = await this.#options.call(
        number,
        AbortSignal.any([this.#stop.signal, AbortSignal.timeout(this.#options.callTimeoutMs)]),
        { isLast: false },
      );
      if (this.#stop.signal.aborted) return;
      if (number > this.#lastApplied) {
        this.#lastApplied = number;
        this.#options.apply(answer);
      }
      if (this.#failure !== undefined) this.#options.log.info("connected to the controller again");
      this.#failure = undefined;
      this.#lastSuccess = new Date();
      this.#backoff.succeed();
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      const why = errorText(error);
      if (this.#failure !== why) this.#options.log.warn({ reason: why }, "a report to the controller failed");
      this.#failure = why;
      if (errorCodeOf(error) === "MILLPOND_E_NODE_REMOVED") this.#options.onRemoved(why);
      // Jitter: many agents lose the same controller at the same moment, and must not all return at the same moment.
      this.#retryDelayMs = this.#backoff.fail() * (0.75 + Math.random() / 2);
    }
  }
}

async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await delay(milliseconds, undefined, { signal }).catch(() => undefined);
}
