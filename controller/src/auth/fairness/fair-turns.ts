// SPDX-License-Identifier: Apache-2.0

// Reads of lists are answered by one thread, which has agents, tickets and leases to see to as well. So they have it a few
// milliseconds at a time, in the order of a fair queue, and between two such turns whatever else has come is done.

import { setImmediate } from "node:timers/promises";
import { type ContextValues, createContextKey } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import type { Caller } from "../../domain/caller.ts";
import { FairQueue } from "./fair-queue.ts";

/** Reads of a token that wait. */
const mostWaiting = 256;

/** How long a read has the thread at a time, in milliseconds, if it asks often enough. */
const turnMs = 4;

type Reader = Pick<Caller, "name" | "tenant">;

/** The turns of one read. Its first is there when the read begins. */
export class ReadTurns {
  readonly #wait: () => Promise<void>;
  readonly #now: () => number;
  #endsMs = 0;

  constructor(wait: () => Promise<void>, now: () => number) {
    this.#wait = wait;
    this.#now = now;
  }

  /** Whether the turn is over: its time is, or the read has waited for something else. */
  get isOver(): boolean {
    return this.#now() >= this.#endsMs;
  }

  /** Gives the thread to others, until the next turn. */
  async next(): Promise<void> {
    await this.#wait();
  }

  begin(): void {
    this.#endsMs = this.#now() + turnMs;
  }

  end(): void {
    this.#endsMs = 0;
  }
}

/** The turns of the call; absent for calls that do not take turns. */
export const turnsKey = createContextKey<ReadTurns | undefined>(undefined, { description: "turns" });

/** Waits for the next turn of the call. */
export function nextTurnOf({ values }: { readonly values: ContextValues }): () => Promise<void> {
  const turns = values.get(turnsKey);
  return async () => {
    await (turns === undefined ? setImmediate() : turns.next());
  };
}

/** Maps what grows with the pool, within the turns of the call. */
export async function mapInTurns<T, R>(
  items: readonly T[],
  { values }: { readonly values: ContextValues },
  map: (item: T) => R,
): Promise<R[]> {
  const turns = values.get(turnsKey);
  const results: R[] = [];
  for (const item of items) {
    if (turns?.isOver === true) await turns.next();
    results.push(map(item));
  }
  return results;
}

interface Piece {
  readonly caller: Reader;
  readonly turns: ReadTurns;
  readonly begin: () => void;
}

export class FairTurns {
  readonly #queue = new FairQueue<Piece>();
  readonly #now: () => number;
  /** A read has its turn. */
  #isTaken = false;
  #timer: NodeJS.Timeout | undefined;

  /** `now`: milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Notes a call that takes no turns: other tenants leave time for those that follow it. */
  note({ tenant }: Reader): void {
    this.#queue.note(tenant, this.#now());
  }

  /**
   * Runs a read when it is its turn. `signal`: its answer is not wanted any more, so it ends with the next turn.
   *
   * @throws MILLPOND_E_TOO_MANY_CALLS
   */
  async take<T>(caller: Reader, run: (turns: ReadTurns) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const { tenant, name } = caller;
    const waiting = this.#queue.waitingOf(tenant, name);
    if (waiting >= mostWaiting) {
      throw millpondError("MILLPOND_E_TOO_MANY_CALLS", `${waiting} reads with the token ${name} are waiting`);
    }
    let isFresh = true;
    const turns: ReadTurns = new ReadTurns(async () => {
      const { promise, resolve } = Promise.withResolvers<undefined>();
      const piece = { caller, turns, begin: () => resolve(undefined) };
      this.#queue.add(tenant, name, piece, isFresh, this.#now());
      isFresh = false;
      this.#next();
      await promise;
      signal?.throwIfAborted();
    }, this.#now);
    try {
      await turns.next();
      return await run(turns);
    } finally {
      this.#end(caller);
    }
  }

  #end({ tenant, name }: Reader): void {
    // I/O events that have arrived meanwhile are handled first.
    void setImmediate().then(() => {
      this.#queue.end(tenant, name, this.#now());
      this.#next();
    });
  }

  /** Begins the next turn. One at a time, so that the time until the thread is free again is its own. */
  #next(): void {
    if (this.#isTaken) return;
    const next = this.#queue.next(this.#now());
    if (next === undefined) return;
    if (typeof next === "object") {
      this.#begin(next.item);
    } else if (this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        this.#next();
      }, Math.ceil(next) + 1).unref();
    }
  }

  #begin({ caller, turns, begin }: Piece): void {
    const begunMs = this.#now();
    this.#isTaken = true;
    turns.begin();
    begin();
    void setImmediate().then(() => {
      const nowMs = this.#now();
      this.#isTaken = false;
      turns.end();
      this.#queue.charge(caller.tenant, caller.name, nowMs - begunMs, nowMs);
      this.#next();
    });
  }
}
