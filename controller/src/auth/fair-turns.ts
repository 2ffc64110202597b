// SPDX-License-Identifier: Apache-2.0

// Reads of lists are answered by one thread, which has agents, tickets and leases to see to as well. So a token's reads wait
// for each other, tokens take turns, and between two reads whatever else has come is done.

import { setImmediate } from "node:timers/promises";
import { millpondError } from "@millpond/api";

/** Reads under way at a time, of all tokens: some wait for a database. */
const mostAtOnce = 4;

/** And of one token. */
const mostOfToken = 2;

/** Reads of a token that wait. */
const mostWaiting = 256;

interface Line {
  running: number;
  readonly waiting: (() => void)[];
}

export class FairTurns {
  /** By token; the one whose turn is next is the first that may. */
  readonly #lines = new Map<string, Line>();
  #running = 0;

  /**
   * Runs a read when it is its token's turn.
   *
   * @throws MILLPOND_E_TOO_MANY_CALLS
   */
  async take<T>(token: string, run: () => Promise<T>): Promise<T> {
    const line = this.#lines.get(token) ?? { running: 0, waiting: [] };
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
      this.#end(token, line);
    }
  }

  #end(token: string, line: Line): void {
    // I/O events that have arrived meanwhile are handled first.
    void setImmediate().then(() => {
      this.#running -= 1;
      line.running -= 1;
      if (line.running === 0 && line.waiting.length === 0) {
        this.#lines.delete(token);
      }
      this.#next();
    });
  }

  #next(): void {
    for (const [token, line] of this.#lines) {
      if (this.#running >= mostAtOnce) {
        return;
      }
      const begin = line.running < mostOfToken ? line.waiting.shift() : undefined;
      if (begin !== undefined) {
        this.#running += 1;
        line.running += 1;
        // To the end: the others are before it now.
        this.#lines.delete(token);
        this.#lines.set(token, line);
        begin();
      }
    }
  }
}
