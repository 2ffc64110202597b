// SPDX-License-Identifier: Apache-2.0

// What decisions about the queues are made from.

import type { Holdings, QueueSnapshot } from "@millpond/scheduler";
import { makeHoldings } from "./holdings.ts";
import { toWaiting } from "./standing.ts";
import { defaultQueueName } from "./store/claim-spec.ts";
import { makeDefaultQueue } from "./store/queue-spec.ts";
import type { Facts } from "./settle.ts";
import type { Transaction } from "./transaction.ts";

export function toQueueSnapshot(
  transaction: Transaction,
  facts: Pick<Facts, "picture" | "holdings" | "isNodeReady">,
): QueueSnapshot {
  const isReady = (node: string) => facts.isNodeReady(node);
  // Most decisions are made without looking at everybody who holds something.
  let held: Holdings | undefined;
  const look = () => {
    held ??= holdingsOfAll(transaction, isReady);
    return held;
  };
  return {
    now: transaction.now,
    pool: facts.picture.snapshot(transaction, isReady),
    queues: allQueues(transaction),
    tenants: transaction.allTenants(),
    waiting: transaction.pendingClaims().map(toWaiting),
    totals: transaction.totals(),
    holdings: facts.holdings.of(transaction, isReady),
    get running() {
      return look().running;
    },
    get leftovers() {
      return look().leftovers;
    },
  };
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

/** The queues, with the default one, which is always there. */
export function allQueues(transaction: Pick<Transaction, "allQueues">): QueueSnapshot["queues"] {
  const queues = transaction.allQueues();
  return queues.some(({ name }) => name === defaultQueueName)
    ? queues
    : [...queues, makeDefaultQueue(defaultQueueName)];
}
