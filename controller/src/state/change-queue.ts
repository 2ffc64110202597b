// SPDX-License-Identifier: Apache-2.0

import { setImmediate } from "node:timers/promises";
import { type AuditedCall, currentCall, outsideCalls } from "./audit.ts";
import type { Changed, Savepoint, Transaction } from "./transaction.ts";

/** A requested change. */
export interface Change<T, C, S> {
  /**
   * Makes the change; throws to refuse it. Concurrent changes are written together: when that fails, or when another one of
   * them is rolled back, this is called again from the start.
   */
  readonly make: (transaction: Transaction) => T;
  /** Scope of reconciling beyond the changed records; absent: the change has no consequences. */
  readonly scope?: S;
  /** Checks the consequences; throws to refuse the change. Only called for a change with consequences. */
  readonly verify?: ((transaction: Transaction, conclusion: C) => void) | undefined;
  /** Called when it is durable and has changed something. */
  readonly onDurable?: (() => void) | undefined;
}

/** What happens as a consequence of changes. */
export interface Rules<C, S> {
  /** Reconciles after a group of changes. */
  conclude(transaction: Transaction, scopes: readonly S[]): C;
  /**
   * Called when the changes are durable, before their callers are answered and before the next changes are made.
   *
   * @param changed undefined: nothing
   * @param conclusion the last one; undefined: the changes had no consequences
   */
  onDone(changed: Changed | undefined, conclusion: C | undefined): void;
}

/** The state that changes are made on. */
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

/** The most changes that are written together: the first of them waits for the last. */
const maxTogether = 256;

const refusedUntilMade = { error: new Error("it has not been made") };

/**
 * Queue of changes with group commit. Changes that arrive during a write are made one after the other, reconciled
 * together and written together, so that one flush of the disk serves all of them; each is answered as if it had been
 * the only one.
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

  /** Makes a change durable. When it is refused or cannot be written, the state is unchanged. */
  async change<T>(change: Change<T, C, S>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#entries.push({ change, call: currentCall(), resolve, reject, outcome: refusedUntilMade });
    this.#begin();
    // The return value of `make`.
    return (await promise) as T;
  }

  /** Reads between changes, when none is in progress. */
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

  /** Resolves when the queue is empty. */
  async settled(): Promise<void> {
    await this.#work;
  }

  #begin(): void {
    // The work must not be attributed to the call that happens to trigger it.
    this.#work ??= outsideCalls(() => this.#workOff());
  }

  async #workOff(): Promise<void> {
    for (;;) {
      // Changes of the same turn of the event loop are written together.
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
      // A change that cannot be written must not fail the others.
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

  /**
   * Sets the outcome of each change.
   *
   * @returns the last conclusion
   */
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
        // It may have been refused only because earlier changes have not been reconciled.
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

  /** Reconciles the changes; those that it refuses are rolled back. */
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

/** @returns whether it was made */
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
