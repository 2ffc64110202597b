// SPDX-License-Identifier: Apache-2.0

// Chooses victims so that a unit fits: as few as possible, of low priority, recently started. The search is bounded.

import { type Reason, reason } from "@millpond/api";
import { allowsDevice, allowsNode } from "../constraints.ts";
import { isOpen, takesClaims } from "../filter.ts";
import type { NodeState, Snapshot } from "../snapshot.ts";
import type { Holdings, PlanSettings, Preemption, RunningClaim } from "./claim.ts";
import { canBePreempted, outlookOf } from "./holdings.ts";
import { add, type Amount, nothing } from "./quota.ts";
import { type Reservation, withHolds, withoutGrants } from "./reservation.ts";
import type { QueueTree } from "./tree.ts";
import { amountOfStatements, amountOn, placeUnit, type Unit } from "./unit.ts";

/** Claims that are preempted together: one, or the members of a gang. */
interface Victim {
  readonly claims: readonly RunningClaim[];
  /** One of them; all are charged to the same queue and tenant. */
  readonly payer: RunningClaim;
  readonly amount: Amount;
  readonly why: Reason;
}

export interface PreemptionPlan {
  readonly victims: readonly RunningClaim[];
  readonly preemptions: readonly Preemption[];
}

interface Context {
  readonly holdings: (node: string) => Holdings;
  readonly tree: QueueTree;
  /** They are served first from the released capacity. */
  readonly reservations: readonly Reservation[];
  readonly settings: PlanSettings;
  /** A quota blocks the unit, regardless of free room. */
  readonly isForQuota: boolean;
}

/** @returns undefined when no claim may be preempted, or when the eligible ones are not sufficient or too many */
export function findVictims(snapshot: Snapshot, unit: Unit, context: Context): PreemptionPlan | undefined {
  const victims = eligible(snapshot, unit, context);
  const taken = victims.length === 0 ? undefined : cheapest(snapshot, unit, victims, context);
  if (taken === undefined) {
    return undefined;
  }
  return {
    victims: taken.flatMap(({ claims }) => claims),
    preemptions: taken.flatMap(({ claims, why }) =>
      claims.map(({ statement }) => ({
        claim: statement.claim,
        beneficiary: unit.name,
        reason: reason("preempted-for", { beneficiary: unit.holder, because: why }),
      })),
    ),
  };
}

/** The claims that may be preempted, cheapest first. */
function eligible(
  snapshot: Snapshot,
  unit: Unit,
  { holdings, tree, settings, isForQuota }: Context,
): Victim[] {
  const nodes = new Map(snapshot.nodes.map((node) => [node.name, node]));
  const useful = new Set(snapshot.nodes.filter((node) => isForQuota || mayHold(node, unit)).map(nameOf));
  const mayTake = takerFor(unit, tree);
  const considered = snapshot.nodes.flatMap(({ name }) =>
    outlookOf(holdings(name)).takeable.filter(
      (claim) => claim.gang !== "" || (useful.has(name) && mayTake(claim)),
    ),
  );
  const groups = Map.groupBy(considered, ({ gang, statement }) =>
    gang === "" ? `claim ${statement.claim}` : `gang ${gang}`,
  );
  const sorted = [...groups.values()]
    .filter(
      (claims) => claims.every(canBePreempted) && claims.some(({ statement }) => useful.has(statement.node)),
    )
    .map((claims) => (claims.length === 1 ? claims : claims.toSorted(compareNames)))
    .sort(compareGroups);
  const charged = isForQuota ? chargedWith(unit, tree) : () => true;
  const bound = new Bound(settings.maxCandidates, isOfOneNode(unit, isForQuota));
  const victims: Victim[] = [];
  for (const claims of [...sorted.filter(charged), ...sorted.filter((each) => !charged(each))]) {
    if (bound.isReached(claims)) {
      continue;
    }
    const amount = claims.reduce(
      (sum, { statement }) => add(sum, amountOn(nodes.get(statement.node), statement)),
      nothing,
    );
    const [payer] = claims;
    const why = payer && reasonToTake(unit, payer, amount, tree);
    if (payer !== undefined && why !== undefined) {
      victims.push({ claims, payer, amount, why });
      bound.count(claims);
    }
  }
  return victims;
}

function nameOf({ name }: NodeState): string {
  return name;
}

/** Whether a member of the unit could ever be placed there; claims elsewhere are not preempted. */
function mayHold(node: NodeState, { members }: Unit): boolean {
  return (
    isOpen(node) &&
    members.some(
      ({ request: { constraints } }) =>
        allowsNode(constraints, node) &&
        node.devices.some((device) => takesClaims(device) && allowsDevice(constraints, device)),
    )
  );
}

/** A single claim needs room on one node: each node is considered by itself. */
function isOfOneNode({ members }: Unit, isForQuota: boolean): boolean {
  return members.length === 1 && !isForQuota;
}

/** Whether a claim is charged to the quotas of the unit: only such claims free quota for it. */
function chargedWith({ first }: Unit, tree: QueueTree): (claims: readonly RunningClaim[]) => boolean {
  const own = new Set(tree.chain(first.queue).map(({ name }) => name));
  return ([claim]) =>
    claim !== undefined &&
    (claim.tenant === first.tenant || tree.chain(claim.queue).some(({ name }) => own.has(name)));
}

/** The most claims that are considered; if each node is considered by itself, the most nodes, and the most claims on each. */
class Bound {
  readonly #most: number;
  readonly #isByNode: boolean;
  readonly #counts = new Map<string, number>();

  constructor(most: number, isByNode: boolean) {
    this.#most = most;
    this.#isByNode = isByNode;
  }

  isReached(claims: readonly RunningClaim[]): boolean {
    return this.#places(claims).every((place) => {
      const count = this.#counts.get(place);
      return count === undefined ? this.#counts.size >= this.#most : count >= this.#most;
    });
  }

  count(claims: readonly RunningClaim[]): void {
    for (const place of this.#places(claims)) {
      this.#counts.set(place, (this.#counts.get(place) ?? 0) + 1);
    }
  }

  #places(claims: readonly RunningClaim[]): string[] {
    return this.#isByNode ? [...new Set(claims.map(({ statement }) => statement.node))] : [""];
  }
}

/** Whether the unit is entitled to preempt a claim, before the guarantees are checked; for most claims it is not. */
function takerFor({ first }: Unit, tree: QueueTree): (claim: RunningClaim) => boolean {
  const entitled = new Map<string, boolean>();
  return ({ isBestEffort, queue, priority }) => {
    if (isBestEffort && !first.isBestEffort) {
      return true;
    }
    if (queue === first.queue) {
      return priority < first.priority;
    }
    const known = entitled.get(queue) ?? entitledLevel(first.queue, queue, tree) !== undefined;
    entitled.set(queue, known);
    return known;
  };
}

/** The level above a queue whose guarantee covers what the other queue, which is not below it, has borrowed. */
function entitledLevel(queue: string, other: string, tree: QueueTree): string | undefined {
  const others = new Set(tree.chain(other).map(({ name }) => name));
  return tree.guaranteedLevels(queue, nothing).find((level) => !others.has(level));
}

function compareGroups(a: readonly RunningClaim[], b: readonly RunningClaim[]): number {
  const [first, second] = [a[0], b[0]];
  if (first === undefined || second === undefined) {
    return 0;
  }
  return (
    Number(second.isBestEffort) - Number(first.isBestEffort) ||
    first.priority - second.priority ||
    second.boundAt - first.boundAt ||
    compareNames(first, second)
  );
}

function compareNames(a: RunningClaim, b: RunningClaim): number {
  return a.statement.claim < b.statement.claim ? -1 : 1;
}

function reasonToTake(
  { first }: Unit,
  victim: RunningClaim,
  amount: Amount,
  tree: QueueTree,
): Reason | undefined {
  if (victim.isBestEffort && !first.isBestEffort) {
    return reason("is-best-effort");
  }
  if (victim.queue === first.queue) {
    return victim.priority < first.priority
      ? reason("lower-priority", { priority: victim.priority, than: first.priority })
      : undefined;
  }
  const entitled = entitledLevel(first.queue, victim.queue, tree);
  const own = new Set(tree.chain(first.queue).map(({ name }) => name));
  if (entitled === undefined) {
    return undefined;
  }
  if (!tree.canSpare(victim.queue, amount, (level) => own.has(level))) {
    return undefined;
  }
  return reason("borrowed-guarantee", { queue: victim.queue, owner: entitled });
}

/** Fewest claims, then lowest priority, then least lost time, then the first node by name. */
function cheapest(
  snapshot: Snapshot,
  unit: Unit,
  victims: readonly Victim[],
  { settings, tree, reservations, isForQuota }: Context,
): readonly Victim[] | undefined {
  const choices: (readonly Victim[])[] = [];
  const consider = (nodes: Snapshot["nodes"], those: readonly Victim[]) => {
    const placeWithout = (taken: readonly Victim[]) =>
      placeUnit(
        withHolds(
          withoutGrants(
            { ...snapshot, nodes },
            taken.flatMap(({ claims }) => claims),
          ),
          reservations,
        ),
        unit,
      );
    const candidates = affordable(those, unit, tree);
    if (placeWithout(candidates) === undefined) {
      return;
    }
    const choice = takeUntilFits(candidates, (taken) => {
      const statements = placeWithout(taken);
      return statements !== undefined && isWithinQuota(snapshot, unit, statements, taken, tree);
    });
    if (choice !== undefined) {
      choices.push(choice);
    }
  };
  if (isOfOneNode(unit, isForQuota)) {
    const nodes = new Map(snapshot.nodes.map((node) => [node.name, node]));
    const byNode = new Map<string, Victim[]>();
    for (const victim of victims) {
      for (const name of new Set(victim.claims.map(({ statement }) => statement.node))) {
        byNode.set(name, [...(byNode.get(name) ?? []), victim]);
      }
    }
    for (const [name, here] of [...byNode].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const node = nodes.get(name);
      if (node !== undefined) {
        consider([node], here);
      }
    }
  } else {
    consider(snapshot.nodes, victims);
  }
  return choices
    .filter((choice) => countOf(choice) <= settings.maxVictims)
    .sort((a, b) => compareCosts(costOf(a), costOf(b)))[0];
}

/** The victims whose joint preemption leaves every queue its guarantee. */
function affordable(victims: readonly Victim[], unit: Unit, tree: QueueTree): Victim[] {
  const own = new Set(tree.chain(unit.first.queue).map(({ name }) => name));
  const kept = victims.filter(({ payer, amount }) => {
    const isKept = !isReclaimed(payer, unit) || tree.canSpare(payer.queue, amount, (level) => own.has(level));
    if (isKept) {
      tree.refund(payer, amount);
    }
    return isKept;
  });
  for (const { payer, amount } of kept) {
    tree.charge(payer, amount);
  }
  return kept;
}

/** Whether it is preempted because its queue has borrowed. */
function isReclaimed({ queue, isBestEffort }: RunningClaim, { first }: Unit): boolean {
  return queue !== first.queue && !isBestEffort;
}

function takeUntilFits(
  victims: readonly Victim[],
  fits: (taken: readonly Victim[]) => boolean,
): readonly Victim[] | undefined {
  let count = 0;
  while (count < victims.length && !fits(victims.slice(0, count + 1))) {
    count += 1;
  }
  if (count === victims.length) {
    return undefined;
  }
  // Spares victims that turn out to be unnecessary, the most expensive ones first.
  let taken = victims.slice(0, count + 1);
  for (const victim of taken.toReversed()) {
    const others = taken.filter((each) => each !== victim);
    if (fits(others)) {
      taken = others;
    }
  }
  return taken;
}

function countOf(victims: readonly Victim[]): number {
  return victims.reduce((sum, { claims }) => sum + claims.length, 0);
}

/** Number of claims, highest priority, and the negated latest start: smaller is better. */
function costOf(victims: readonly Victim[]): readonly number[] {
  const claims = victims.flatMap((victim) => victim.claims);
  return [
    claims.length,
    Math.max(...claims.map(({ isBestEffort, priority }) => (isBestEffort ? -1001 : priority))),
    -Math.min(...claims.map(({ boundAt }) => boundAt)),
  ];
}

function compareCosts(a: readonly number[], b: readonly number[]): number {
  for (const [position, value] of a.entries()) {
    const difference = value - (b[position] ?? 0);
    if (difference !== 0) {
      return difference;
    }
  }
  return 0;
}

/**
 * Whether the unit stays within its quota after the victims have released theirs, and within its guarantee where it
 * reclaims.
 */
function isWithinQuota(
  snapshot: Snapshot,
  unit: Unit,
  statements: Parameters<typeof amountOfStatements>[1],
  taken: readonly Victim[],
  tree: QueueTree,
): boolean {
  const { first } = unit;
  const amount = amountOfStatements(snapshot, statements);
  for (const victim of taken) {
    tree.refund(victim.payer, victim.amount);
  }
  const isAllowed = tree.refusal(first, amount) === undefined;
  const covering = tree.guaranteedLevels(first.queue, amount);
  const isCovered = taken.every(({ payer }) => {
    const others = new Set(tree.chain(payer.queue).map(({ name }) => name));
    return !isReclaimed(payer, unit) || covering.some((level) => !others.has(level));
  });
  for (const victim of taken) {
    tree.charge(victim.payer, victim.amount);
  }
  return isAllowed && isCovered;
}
