// SPDX-License-Identifier: Apache-2.0

import { setImmediate } from "node:timers/promises";
import { type AuditedCall, currentCall, outsideCalls } from "./audit.ts";
import type { Changed, Savepoint, Transaction } from "./transaction.ts";

/** What somebody wants changed. */
export interface Change<T, C, S> {
  /**
   * Makes it; throws to refuse it. What is made together is written together: when that fails, and when a change beside
   * it is refused by what it has come to, it is made again from the beginning.
   */
  readonly make: (transaction: Transaction) => T;
  /** What may follow from it, beside what follows from what it changes; absent: nothing follows from it. */
  readonly scope?: S;
  /** Looks at what it has come to; throws to refuse it. Only where something follows from it. */
  readonly verify?: ((transaction: Transaction, conclusion: C) => void) | undefined;
  /** Is called when it is durable and has changed something. */
  readonly onDurable?: (() => void) | undefined;
}

/** What follows from changes. */
export interface Rules<C, S> {
  /** Does it, for changes that were made one after the other. */
  conclude(transaction: Transaction, scopes: readonly S[]): C;
  /**
   * Is told when it is durable, before those who wanted the changes are, and before the next ones are made.
   *
   * @param changed Undefined: nothing.
   * @param conclusion The last one; undefined: the changes had no consequences.
   */
  onDone(changed: Changed | undefined, conclusion: C | undefined): void;
}

/** What changes are made on, and how they become durable. */
export interface Target {
  begin(): Transaction;
  /** When it fails, nothing has happened. */
  commit(transaction: Transaction, calls: readonly AuditedCall[]): Promise<void>;
}

interface Entry<C, S> {
  readonly change: Change<unknown, C, S>;
  readonly call: AuditedCall | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
  outcome: { readonly value: unknown; readonly hasChanged: boolean } | { readonly error: unknown };
}

/** So many changes are written together at most: the first of them waits for the last. */
const maxTogether = 256;

const refusedUntilMade = { error: new Error("it has not been made") };

/**
 * Changes that wait. Those that come while others are being written are made one after the other, concluded together and
 * written together, so that a flush of the disk serves all of them; each is answered as if it had been alone.
 */
export class ChangeQueue<C, S> {
  readonly #target: Target;
  readonly #rules: Rules<C, S>;
  readonly #reads: (() => void)[] = [];
  readonly #entries: Entry<C, S>[] = [];
  #work: Promise<void> | undefined;

  constructor(target: Target, rules: Rules<C, S>) {
    this.#target = target;
    this.#rules = rules;
  }

  /** Makes a change durable. When it is refused or cannot be written, nothing of it has happened. */
  async change<T>(change: Change<T, C, S>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#entries.push({ change, call: currentCall(), resolve, reject, outcome: refusedUntilMade });
    this.#begin();
    // What `make` returned.
    return (await promise) as T;
  }

  /** Reads between changes: none is under way. */
  async read<T>(look: (transaction: Transaction) => T): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#reads.push(() => {
      try {
        resolve(look(this.#target.begin()));
      } catch (error) {
        reject(error);
      }
    });
    this.#begin();
    return await promise;
  }

  /** Is fulfilled when nothing waits any more. */
  async settled(): Promise<void> {
    await this.#work;
  }

  #begin(): void {
    // Whoever happens to be first has nothing to do with the others.
    this.#work ??= outsideCalls(() => this.#workOff());
  }

  async #workOff(): Promise<void> {
    for (;;) {
      // What the same turn of the event loop brings goes together.
      await setImmediate();
      for (const read of this.#reads.splice(0)) {
        read();
      }
      const entries = this.#entries.splice(0, maxTogether);
      if (entries.length > 0) {
        await this.#run(entries);
      } else if (this.#reads.length === 0) {
        this.#work = undefined;
        return;
      }
    }
  }

  async #run(entries: readonly Entry<C, S>[]): Promise<void> {
    const transaction = this.#target.begin();
    const conclusion = this.#makeAll(transaction, entries);
    try {
      if (transaction.hasChanges) {
        const calls = entries.filter(hasChanged).map(({ call }) => call);
        await this.#target.commit(
          transaction,
          calls.filter((call) => call !== undefined),
        );
      }
    } catch (error) {
      const [first] = entries;
      if (entries.length === 1) {
        first?.reject(error);
        return;
      }
      // One that cannot be written must not take the others with it.
      for (const entry of entries) {
        await this.#run([entry]);
      }
      return;
    }
    try {
      this.#rules.onDone(transaction.hasChanges ? transaction.changed() : undefined, conclusion);
    } catch (error) {
      for (const { reject } of entries) {
        reject(error);
      }
    }
    for (const { outcome, change, resolve, reject } of entries) {
      if ("error" in outcome) {
        reject(outcome.error);
      } else {
        if (outcome.hasChanged) {
          change.onDurable?.();
        }
        resolve(outcome.value);
      }
    }
  }

  /** Gives each its outcome. @returns The last conclusion. */
  #makeAll(transaction: Transaction, entries: readonly Entry<C, S>[]): C | undefined {
    let made: Entry<C, S>[] = [];
    let start = transaction.savepoint();
    let conclusion: C | undefined;
    const conclude = () => {
      conclusion = this.#conclude(transaction, made, start) ?? conclusion;
      made = [];
      start = transaction.savepoint();
    };
    for (const entry of entries) {
      if (!make(transaction, entry) && made.length > 0) {
        // It might be refused only because what follows from those before it has not been done.
        conclude();
        make(transaction, entry);
      }
      if (!("error" in entry.outcome)) {
        made.push(entry);
      }
    }
    conclude();
    return conclusion;
  }

  /** Does what follows from changes; those that are refused by it have not happened. */
  #conclude(transaction: Transaction, made: readonly Entry<C, S>[], start: Savepoint): C | undefined {
    let left = made;
    while (left.some(({ change }) => change.scope !== undefined)) {
      const conclusion = this.#tryConclude(transaction, left);
      const accepted = left.filter(({ outcome }) => !("error" in outcome));
      if (accepted.length === left.length) {
        return conclusion;
      }
      transaction.rollback(start);
      left = accepted.filter((entry) => make(transaction, entry));
    }
    return undefined;
  }

  #tryConclude(transaction: Transaction, entries: readonly Entry<C, S>[]): C | undefined {
    try {
      const scopes = entries.map(({ change }) => change.scope).filter((scope) => scope !== undefined);
      const conclusion = this.#rules.conclude(transaction, scopes);
      for (const entry of entries) {
        attempt(entry, () => entry.change.verify?.(transaction, conclusion));
      }
      return conclusion;
    } catch (error) {
      for (const entry of entries) {
        entry.outcome = { error };
      }
      return undefined;
    }
  }
}

/** @returns Whether it was made. */
function make<C, S>(transaction: Transaction, entry: Entry<C, S>): boolean {
  const start = transaction.savepoint();
  transaction.beginChange();
  const isMade = attempt(entry, () => {
    const value = entry.change.make(transaction);
    entry.outcome = { value, hasChanged: transaction.hasChangedSince(start) };
  });
  if (!isMade) {
    transaction.rollback(start);
  }
  return isMade;
}

function attempt<C, S>(entry: Entry<C, S>, run: () => void): boolean {
  try {
    run();
    return true;
  } catch (error) {
    entry.outcome = { error };
    return false;
  }
}

function hasChanged<C, S>({ outcome }: Entry<C, S>): boolean {
  return "hasChanged" in outcome && outcome.hasChanged;
}
