// SPDX-License-Identifier: Apache-2.0

// Who holds what on each node, as the scheduler sees it.

import type { Holdings, RunningClaim } from "@millpond/scheduler";
import { toLeftover, toStatement } from "./picture.ts";
import { standingOf } from "./standing.ts";
import type { AllocationRecord, ClaimRecord, NodeRecord } from "./store/store.ts";
import type { Transaction } from "./transaction.ts";

/** What is known of a node, and how long it is so. */
interface Known {
  /** Of what is on the node. */
  readonly version: number;
  readonly devices: NodeRecord["devices"] | undefined;
  readonly isReady: boolean;
  readonly now: number;
  /** Before that time it is the same, whatever the time is; with leftovers it never is. */
  readonly sameBefore: number;
  readonly holdings: Holdings;
}

/** Makes holdings. Those of a node that nothing has happened to are the same value again. */
export class HoldingsByNode {
  readonly #known = new Map<string, Known>();

  /** @param isReady Whether nodes are in contact: of what is left on one that is not, nobody knows when it ends. */
  of(transaction: Transaction, isReady: (node: string) => boolean): (node: string) => Holdings {
    const changed = transaction.nodesOfChanges();
    return (node) => {
      const { devices } = transaction.node(node) ?? {};
      const version = transaction.allocations.versionOf(node);
      const known = changed.has(node) ? undefined : this.#known.get(node);
      if (known?.version === version && known.devices === devices && isStill(known, transaction, isReady)) {
        return known.holdings;
      }
      const look = lookAt(transaction, node, isReady(node));
      if (changed.has(node)) {
        this.#known.delete(node);
      } else {
        this.#known.set(node, { ...look, version, devices });
      }
      return look.holdings;
    };
  }
}

function isStill(
  { now, isReady: wasReady, sameBefore, holdings }: Known,
  transaction: Transaction,
  isReady: (node: string) => boolean,
): boolean {
  if (holdings.leftovers.length === 0 && transaction.now < sameBefore) {
    return true;
  }
  const [first] = holdings.leftovers;
  return transaction.now === now && (first === undefined || isReady(first.statement.node) === wasReady);
}

function lookAt(
  transaction: Transaction,
  node: string,
  isReady: boolean,
): Omit<Known, "version" | "devices"> {
  const { now } = transaction;
  const holdings = makeHoldings(transaction, transaction.allocations.onNode(node), isReady ? now : null);
  const ends = holdings.running.map(({ endsAt }) => endsAt ?? Number.POSITIVE_INFINITY);
  return { now, isReady, holdings, sameBefore: Math.min(Number.POSITIVE_INFINITY, ...ends) };
}

/** @param leftUntil When what is left ends; null: nobody knows. */
export function makeHoldings(
  transaction: Transaction,
  allocations: readonly AllocationRecord[],
  leftUntil: number | null,
): Holdings {
  const running: RunningClaim[] = [];
  const leftovers: Holdings["leftovers"][number][] = [];
  for (const allocation of allocations) {
    const claim = transaction.claim(allocation.claim);
    if (allocation.releasedRevision === null && claim !== undefined) {
      running.push(toRunning(claim, allocation, transaction));
    } else {
      leftovers.push(toLeftover(allocation, transaction.node(allocation.node), leftUntil));
    }
  }
  return { running, leftovers };
}

function toRunning(claim: ClaimRecord, allocation: AllocationRecord, transaction: Transaction): RunningClaim {
  const boundAt = claim.boundAt ?? allocation.grantedAt;
  const ends = [
    ...(claim.timeLimitSeconds > 0 ? [boundAt + claim.timeLimitSeconds] : []),
    ...(claim.preemptAt === null ? [] : [claim.preemptAt]),
  ];
  return {
    ...standingOf(claim),
    statement: toStatement(allocation, transaction.node(allocation.node)),
    boundAt,
    endsAt: ends.length === 0 ? null : Math.max(transaction.now, Math.min(...ends)),
    isEnding: claim.preemptAt !== null,
    graceSeconds: claim.graceSeconds,
  };
}
