// SPDX-License-Identifier: Apache-2.0

// The order of turns among the waiting units.

import type { NodeState } from "../snapshot.ts";
import type { Holdings, PlanSettings } from "./claim.ts";
import { outlookOf } from "./holdings.ts";
import type { QueueTree } from "./tree.ts";
import { amountOn, type Unit } from "./unit.ts";

/** What the order depends on. */
export interface Standings {
  /** Charged with each unit's grant before the next turn. */
  readonly tree: QueueTree;
  readonly nodes: readonly NodeState[];
  /** By node. */
  readonly holdings: (node: string) => Holdings;
  readonly now: number;
  readonly settings: PlanSettings;
}

/**
 * Each unit in its turn: queues by weighted fair share; within a queue aged units first, then by priority, then by arrival.
 */
export function* takeTurns(units: readonly Unit[], standings: Standings): Generator<Unit, void> {
  const { tree } = standings;
  const left = Map.groupBy(
    units.toSorted((a, b) => compareInQueue(a, b, standings)),
    ({ first }) => first.queue,
  );
  const counts = new Map<string, number>();
  for (const [queue, list] of left) {
    for (const { name } of tree.chain(queue)) {
      counts.set(name, (counts.get(name) ?? 0) + list.length);
    }
  }
  const positions = new Map<string, number>();
  const discounts = discountsOf(left, standings);
  const turns = {
    has: (name: string) => (counts.get(name) ?? 0) > 0,
    discount: (name: string) => discounts.get(name) ?? 0,
    since: (name: string) =>
      left.get(name)?.[positions.get(name) ?? 0]?.waitingSince ?? Number.POSITIVE_INFINITY,
  };
  for (;;) {
    const queue = tree.next(turns);
    const position = positions.get(queue ?? "") ?? 0;
    const unit = queue === undefined ? undefined : left.get(queue)?.[position];
    if (queue === undefined || unit === undefined) {
      return;
    }
    positions.set(queue, position + 1);
    const discount = position === 0 ? (discounts.get(queue) ?? 0) : 0;
    for (const { name } of tree.chain(queue)) {
      counts.set(name, (counts.get(name) ?? 0) - 1);
      discounts.set(name, (discounts.get(name) ?? 0) - discount);
    }
    yield unit;
  }
}

/** Whether it has waited long enough for room and quotas to be reserved for it. */
export function mayReserve(
  { waitingSince }: Unit,
  { now, settings }: Pick<Standings, "now" | "settings">,
): boolean {
  return now - waitingSince >= settings.reserveAfterSeconds;
}

/**
 * Claims that overtook the first claim of a queue are not charged to it. Otherwise a queue whose small claims proceed while a
 * large one has a reservation would lose its turn, and freed capacity would go to others, again and again.
 */
function discountsOf(left: ReadonlyMap<string, readonly Unit[]>, standings: Standings): Map<string, number> {
  const { tree, nodes, holdings: holdingsOn } = standings;
  const discounts = new Map<string, number>();
  const heads = new Map<string, Unit>();
  for (const [queue, [head]] of left) {
    if (head !== undefined && mayReserve(head, standings)) {
      heads.set(queue, head);
    }
  }
  if (heads.size === 0) {
    return discounts;
  }
  const ofQueues = new Map<string, number>();
  const earliest = Math.min(...[...heads.values()].map(({ waitingSince }) => waitingSince));
  for (const node of nodes) {
    const holdings = holdingsOn(node.name);
    if (outlookOf(holdings).lastBoundAt < earliest) {
      continue;
    }
    for (const { queue, statement, boundAt } of holdings.running) {
      const head = heads.get(queue);
      if (head !== undefined && boundAt >= head.waitingSince) {
        ofQueues.set(queue, (ofQueues.get(queue) ?? 0) + amountOn(node, statement).gpuMilli);
      }
    }
  }
  for (const [queue, gpuMilli] of ofQueues) {
    for (const { name } of tree.chain(queue)) {
      discounts.set(name, (discounts.get(name) ?? 0) + gpuMilli);
    }
  }
  return discounts;
}

function compareInQueue(a: Unit, b: Unit, { now, settings }: Standings): number {
  const isAged = ({ waitingSince }: Unit) => now - waitingSince >= settings.ageAfterSeconds;
  return (
    Number(isAged(b)) - Number(isAged(a)) ||
    (isAged(a) ? 0 : b.first.priority - a.first.priority) ||
    a.first.arrival - b.first.arrival
  );
}
