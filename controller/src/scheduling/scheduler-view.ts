// SPDX-License-Identifier: Apache-2.0

// The inputs of decisions about the queues.

import type { Holdings, QueueSnapshot, Snapshot } from "@millpond/scheduler";
import { defaultQueueName } from "../domain/claim-spec.ts";
import { makeDefaultQueue } from "../domain/default-queue.ts";
import { isNodeReady, type ObservedState } from "../domain/observed-state.ts";
import { toWaiting } from "../domain/to-scheduler-claim.ts";
import type { Transaction } from "../state/transaction.ts";
import { HoldingsCache, makeHoldings } from "./holdings-cache.ts";
import { SnapshotCache } from "./snapshot-cache.ts";

type ObservedNodes = Pick<ObservedState, "nodes">;

/** The state in the scheduler's types. Unchanged parts are the same objects as before. */
export class SchedulerView {
  readonly #snapshots = new SnapshotCache();
  readonly #holdings = new HoldingsCache();

  /** The devices with their grants. */
  snapshot(transaction: Transaction, observed: ObservedNodes): Snapshot {
    return this.#snapshots.snapshot(transaction, (node) => isNodeReady(observed, node));
  }

  /** The pool with its queues, and the claims that wait or hold devices. */
  queueSnapshot(transaction: Transaction, observed: ObservedNodes): QueueSnapshot {
    const isReady = (node: string) => isNodeReady(observed, node);
    // Most decisions are made without looking at every allocation.
    let held: Holdings | undefined;
    const look = () => {
      held ??= holdingsOfAll(transaction, isReady);
      return held;
    };
    return {
      now: transaction.now,
      pool: this.#snapshots.snapshot(transaction, isReady),
      queues: allQueues(transaction),
      tenants: transaction.tenants.all(),
      waiting: transaction.pendingClaims().map(toWaiting),
      totals: transaction.totals(),
      holdings: this.#holdings.of(transaction, isReady),
      get running() {
        return look().running;
      },
      get leftovers() {
        return look().leftovers;
      },
    };
  }
}

function holdingsOfAll(transaction: Transaction, isReady: (node: string) => boolean): Holdings {
  const byNode = Map.groupBy(transaction.allocations.all(), ({ node }) => node);
  const all = [...byNode].map(([node, own]) =>
    makeHoldings(transaction, own, isReady(node) ? transaction.now : null),
  );
  return {
    running: all.flatMap(({ running }) => running),
    leftovers: all.flatMap(({ leftovers }) => leftovers),
  };
}

/** The queues, including the default one, which always exists. */
export function allQueues(transaction: Pick<Transaction, "queues">): QueueSnapshot["queues"] {
  const queues = transaction.queues.all();
  return queues.some(({ name }) => name === defaultQueueName)
    ? queues
    : [...queues, makeDefaultQueue(defaultQueueName)];
}
