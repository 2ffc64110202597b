// SPDX-License-Identifier: Apache-2.0

// One thread answers reads of lists, and also serves agents, tickets and leases. So reads run a few milliseconds at a
// time, in the order of a fair queue, and other work is done between two such turns.

import { setImmediate } from "node:timers/promises";
import { type ContextValues, createContextKey } from "@connectrpc/connect";
import { millpondError } from "@millpond/api";
import type { Caller } from "../../domain/caller.ts";
import { FairQueue } from "./fair-queue.ts";

/** The most waiting reads of a token. */
const mostWaiting = 256;

/** How long a read may run at a time, in milliseconds, provided that it checks often enough. */
const turnMs = 4;

type Reader = Pick<Caller, "name" | "tenant">;

/** The turns of one read. The first one is granted when the read begins. */
export class ReadTurns {
  readonly #wait: () => Promise<void>;
  readonly #now: () => number;
  #endsMs = 0;

  constructor(wait: () => Promise<void>, now: () => number) {
    this.#wait = wait;
    this.#now = now;
  }

  /** Whether the turn is over: its time is used up, or the read has waited for something else. */
  get isOver(): boolean {
    return this.#now() >= this.#endsMs;
  }

  /** Yields the thread to others until the next turn. */
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

/** The turns of a call; absent for calls that take no turns. */
export const turnsKey = createContextKey<ReadTurns | undefined>(undefined, { description: "turns" });

/** Waits for the next turn of the call. */
export function nextTurnOf({ values }: { readonly values: ContextValues }): () => Promise<void> {
  const turns = values.get(turnsKey);
  return async () => {
    await (turns === undefined ? setImmediate() : turns.next());
  };
}

/** Maps a list that grows with the pool, within the turns of the call. */
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
  /** Called when it is the read's turn. */
  #isTaken = false;
  #timer: NodeJS.Timeout | undefined;

  /** `now`: milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Notes a call that takes no turns: other tenants leave time for the tenant's next ones. */
  note({ tenant }: Reader): void {
    this.#queue.note(tenant, this.#now());
  }

  /**
   * Runs a read when it is its turn. `signal`: the answer is no longer wanted, so the read ends at its next turn.
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

  /**
   * Begins the next turn. Turns begin one at a time, so that the time until the thread is free again is charged to one
   * read only.
   */
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
