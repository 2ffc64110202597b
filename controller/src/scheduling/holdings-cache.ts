// SPDX-License-Identifier: Apache-2.0

// The holdings of each node, in the scheduler's types.

import type { Holdings, RunningClaim } from "@millpond/scheduler";
import { toLeftover, toStatement } from "../domain/to-scheduler-holding.ts";
import type { AllocationRecord, ClaimRecord, NodeRecord } from "../domain/records.ts";
import { standingOf } from "../domain/to-scheduler-claim.ts";
import type { Transaction } from "../state/transaction.ts";

/** Cached holdings of a node, and how long they are valid. */
interface Known {
  /** Version of the node's allocations. */
  readonly version: number;
  readonly devices: NodeRecord["devices"] | undefined;
  readonly isReady: boolean;
  readonly now: number;
  /** Valid before this time. Holdings with released allocations are never cached. */
  readonly sameBefore: number;
  readonly holdings: Holdings;
}

/** Computes holdings. Those of an unchanged node are the same object as before. */
export class HoldingsCache {
  readonly #known = new Map<string, Known>();

  /** @param isReady whether nodes are in contact: on a lost node the end of released allocations is unknown */
  of(transaction: Transaction, isReady: (node: string) => boolean): (node: string) => Holdings {
    const changed = transaction.nodesOfChanges();
    return (node) => {
      const { devices } = transaction.nodes.get(node) ?? {};
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

/** @param leftUntil when released allocations end; null: unknown */
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
      leftovers.push(toLeftover(allocation, transaction.nodes.get(allocation.node), leftUntil));
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
    statement: toStatement(allocation, transaction.nodes.get(allocation.node)),
    boundAt,
    endsAt: ends.length === 0 ? null : Math.max(transaction.now, Math.min(...ends)),
    isEnding: claim.preemptAt !== null,
    graceSeconds: claim.graceSeconds,
  };
}
