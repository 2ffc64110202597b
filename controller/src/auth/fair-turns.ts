// SPDX-License-Identifier: Apache-2.0

// Reads of lists are answered by one thread, which has agents, tickets and leases to see to as well. So a token's reads wait
// for each other, tokens take turns, and between two reads whatever else has come is done. A token that has read for half a
// second gets a quarter of the thread's time from then on: sessions of others open meanwhile.

import { setImmediate } from "node:timers/promises";
import { millpondError } from "@millpond/api";

/** Reads under way at a time, of all tokens: some wait for a database. */
const mostAtOnce = 4;

/** And of one token. */
const mostOfToken = 2;

/** Reads of a token that wait. */
const mostWaiting = 256;

/** Time of the thread that a token may use at once, in milliseconds, and its part of the time afterwards. */
const burstMs = 500;
const lastingPart = 0.25;

/** Lines of this number of tokens are kept for the time that they have used. */
const mostIdle = 1024;

interface Line {
  running: number;
  readonly waiting: (() => void)[];
  /** Time of the thread that it has used beyond its lasting part, when it was last counted. */
  usedMs: number;
  countedMs: number;
}

export class FairTurns {
  /** By token; the one whose turn is next is the first that may. */
  readonly #lines = new Map<string, Line>();
  readonly #now: () => number;
  #running = 0;
  /** A read has begun, and its time of the thread is being counted. */
  #isCounting = false;
  #timer: NodeJS.Timeout | undefined;

  /** `now`: milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /**
   * Runs a read when it is its token's turn.
   *
   * @throws MILLPOND_E_TOO_MANY_CALLS
   */
  async take<T>(token: string, run: () => Promise<T>): Promise<T> {
    const line = this.#lines.get(token) ?? { running: 0, waiting: [], usedMs: 0, countedMs: this.#now() };
    if (line.waiting.length >= mostWaiting) {
      throw millpondError(
        "MILLPOND_E_TOO_MANY_CALLS",
        `${line.waiting.length} reads with the token ${token} are waiting`,
      );
    }
    this.#lines.set(token, line);
    const { promise, resolve } = Promise.withResolvers<undefined>();
    line.waiting.push(() => resolve(undefined));
    this.#next();
    await promise;
    try {
      return await run();
    } finally {
      this.#end(line);
    }
  }

  #end(line: Line): void {
    // I/O events that have arrived meanwhile are handled first.
    void setImmediate().then(() => {
      this.#running -= 1;
      line.running -= 1;
      if (this.#lines.size > mostIdle) this.#forgetIdle();
      this.#next();
    });
  }

  #forgetIdle(): void {
    for (const [token, line] of this.#lines) {
      if (line.running === 0 && line.waiting.length === 0 && this.#count(line) === 0)
        this.#lines.delete(token);
    }
  }

  /** Begins the next read. One at a time, so that the time until the thread is free again is its own. */
  #next(): void {
    if (this.#isCounting || this.#running >= mostAtOnce) return;
    let waitMs = Infinity;
    for (const [token, line] of this.#lines) {
      if (line.waiting.length === 0 || line.running >= mostOfToken) continue;
      const excessMs = this.#count(line) - burstMs;
      if (excessMs >= 0) {
        waitMs = Math.min(waitMs, excessMs / lastingPart);
        continue;
      }
      this.#running += 1;
      line.running += 1;
      // To the end: the others are before it now.
      this.#lines.delete(token);
      this.#lines.set(token, line);
      this.#begin(line);
      return;
    }
    if (waitMs === Infinity || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#next();
    }, Math.ceil(waitMs) + 1).unref();
  }

  #begin(line: Line): void {
    const begunMs = this.#now();
    this.#isCounting = true;
    line.waiting.shift()?.();
    void setImmediate().then(() => {
      this.#isCounting = false;
      this.#count(line);
      line.usedMs += this.#now() - begunMs;
      this.#next();
    });
  }

  /** The time that a line has used until now. */
  #count(line: Line): number {
    const now = this.#now();
    line.usedMs = Math.max(0, line.usedMs - (now - line.countedMs) * lastingPart);
    line.countedMs = now;
    return line.usedMs;
  }
}
