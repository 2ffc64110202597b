// SPDX-License-Identifier: Apache-2.0

// Room that is kept for a unit that has to wait: what is free now and what others give back.

import { formatDuration } from "@millpond/api";
import type { DeviceState, NodeState, Snapshot } from "../snapshot.ts";
import type { Statement } from "../statement.ts";
import { compareEndings, type Ending, type EndingsOn } from "./holdings.ts";
import { placeUnit, shapeOfUnit, type Unit } from "./unit.ts";

/** What is free of a device and has to stay so. */
interface Hold {
  readonly node: string;
  readonly uuid: string;
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

export interface Reservation {
  readonly unit: Unit;
  /** When there is room at the latest; null: nobody knows. */
  readonly startsAt: number | null;
  readonly statements: readonly Statement[];
  /** Those who have to end before, on the nodes where it is placed. */
  readonly ended: readonly Ending[];
  readonly holds: readonly Hold[];
}

/**
 * Finds the room that is there first when claims give back what they hold: those whose end is known in that order, then
 * the others, oldest first. The order stays the same while time passes and claims come elsewhere, so a unit's turn comes
 * no later than when the claims that are in the pool now have ended.
 */
export function reserve(snapshot: Snapshot, unit: Unit, endingsOn: EndingsOn): Reservation | undefined {
  const least = isOfOneNode(unit)
    ? leastOnOneNode(snapshot, unit, endingsOn)
    : leastOf(snapshot, unit, endingsOn);
  if (least === undefined) {
    return undefined;
  }
  const { ended, statements } = least;
  const last = ended.at(-1);
  const nodes = new Set(statements.map(({ node }) => node));
  const there = ended.filter(({ statement }) => nodes.has(statement.node));
  return {
    unit,
    startsAt: last === undefined ? Number.NEGATIVE_INFINITY : last.endsAt,
    statements,
    ended: there,
    holds: holdsOf(statements, there),
  };
}

/** The fewest endings that have to be there, in their order, and what is placed then. */
interface Least {
  readonly ended: readonly Ending[];
  readonly statements: readonly Statement[];
}

/** Whether it is all on one node, wherever other claims are. */
function isOfOneNode({ members, first }: Unit): boolean {
  const isTogether = members.length === 1 || first.isSameNode;
  return isTogether && members.every(({ request }) => request.constraints?.affinity === undefined);
}

/** For a unit that needs one node, each node is looked at by itself: it needs some of the endings that are its own. */
function leastOnOneNode(snapshot: Snapshot, unit: Unit, endingsOn: EndingsOn): Least | undefined {
  let best:
    | { readonly node: NodeState; readonly ended: readonly Ending[]; readonly last: Ending }
    | undefined;
  const enoughOn = counterFor(snapshot, unit);
  for (const node of snapshot.nodes) {
    const endings = endingsOn(node.name);
    const enough = enoughOn(node, endings);
    if (enough === 0) {
      // There is room already: then the best of the nodes is taken.
      const statements = placeUnit(snapshot, unit) ?? placeUnit({ ...snapshot, nodes: [node] }, unit);
      return statements && { ended: [], statements };
    }
    const last = enough === null ? undefined : endings[enough - 1];
    if (last !== undefined && (best === undefined || compareEndings(last, best.last) < 0)) {
      best = { node, ended: endings.slice(0, enough ?? 0), last };
    }
  }
  const statements = best && placeUnit(without(snapshot, best.node, best.ended), unit);
  return best && statements && { ended: best.ended, statements };
}

/** What was found out about a node with these endings: a node that changes is another value. */
interface Counted {
  readonly endings: readonly Ending[];
  /** How many have to end, by shape; null: all are not enough. */
  readonly enough: Map<string, number | null>;
}

/** Shapes of units of which it is remembered for one node. */
const maxRemembered = 64;
const counted = new WeakMap<NodeState, Counted>();

/** How many of its endings have to be there so that the unit fits on a node; null: all are not enough. */
function counterFor(snapshot: Snapshot, unit: Unit) {
  const count = (node: NodeState, endings: readonly Ending[]) => {
    const tryFirst = (enough: number) => placeUnit(without(snapshot, node, endings.slice(0, enough)), unit);
    return leastFitting(tryFirst, endings.length, tryFirst(endings.length)) ?? null;
  };
  if (unit.members.length > 1) {
    // Whether several fit depends on where the first of them are put, which the workload decides.
    return count;
  }
  const shape = shapeOfUnit(unit);
  return (node: NodeState, endings: readonly Ending[]) => {
    let known = counted.get(node);
    if (known?.endings !== endings) {
      known = { endings, enough: new Map() };
      counted.set(node, known);
    }
    let enough = known.enough.get(shape);
    if (enough === undefined) {
      enough = count(node, endings);
      if (known.enough.size >= maxRemembered) {
        known.enough.clear();
      }
      known.enough.set(shape, enough);
    }
    return enough;
  };
}

/** The node alone, when these have given back what they hold of it. */
function without(snapshot: Snapshot, node: NodeState, ended: readonly Ending[]): Snapshot {
  return withoutGrants({ ...snapshot, nodes: [node] }, ended);
}

/** For a unit that may span nodes. Mostly few have to end, so the search goes out from the beginning. */
function leastOf(snapshot: Snapshot, unit: Unit, endingsOn: EndingsOn): Least | undefined {
  const ordered = snapshot.nodes.flatMap(({ name }) => endingsOn(name)).sort(compareEndings);
  const tryFirst = (count: number) => placeUnit(withoutGrants(snapshot, ordered.slice(0, count)), unit);
  let most = 0;
  let statements = tryFirst(0);
  while (statements === undefined && most < ordered.length) {
    most = Math.min(ordered.length, Math.max(1, 2 * most));
    statements = tryFirst(most);
  }
  const enough = leastFitting(tryFirst, most, statements);
  const placed = enough === undefined ? undefined : tryFirst(enough);
  return placed && { ended: ordered.slice(0, enough), statements: placed };
}

/** The more is given back, the more fits: goes back from a number of endings that is enough. */
function leastFitting(
  tryFirst: (count: number) => readonly Statement[] | undefined,
  most: number,
  withMost: readonly Statement[] | undefined,
): number | undefined {
  if (withMost === undefined) {
    return undefined;
  }
  let tooFew = -1;
  let enough = most;
  while (enough - tooFew > 1) {
    const middle = Math.floor((tooFew + enough) / 2);
    if (tryFirst(middle) === undefined) {
      tooFew = middle;
    } else {
      enough = middle;
    }
  }
  return enough;
}

/** Whom something is kept for: for people. */
export function describeKeeper({ unit }: Reservation, now: number): string {
  return `${unit.name}, which has waited ${formatDuration(now - unit.waitingSince)}`;
}

/** The snapshot in which what has to stay free looks taken. */
export function withHolds(snapshot: Snapshot, reservations: readonly Reservation[]): Snapshot {
  const holds = reservations.flatMap((reservation) =>
    reservation.holds.map((hold) => ({ ...hold, claim: `reserved for ${reservation.unit.name}` })),
  );
  if (holds.length === 0) {
    return snapshot;
  }
  const byNode = Map.groupBy(holds, ({ node }) => node);
  return changeNodes(
    snapshot,
    (name) => byNode.has(name),
    (node, device) => {
      const own = (byNode.get(node.name) ?? []).filter(({ uuid }) => uuid === device.uuid);
      return own.length === 0
        ? device
        : {
            ...device,
            grants: [
              ...device.grants,
              ...own.map(({ claim, memoryBytes, computePercent }) => ({
                claim,
                memoryBytes,
                computePercent,
              })),
            ],
          };
    },
  );
}

/** The snapshot when these have given back what they hold. */
export function withoutGrants(
  snapshot: Snapshot,
  ended: readonly { readonly statement: Statement }[],
): Snapshot {
  if (ended.length === 0) {
    return snapshot;
  }
  const byNode = new Map<string, Set<string>>();
  for (const { statement } of ended) {
    byNode.set(statement.node, (byNode.get(statement.node) ?? new Set()).add(statement.claim));
  }
  return changeNodes(
    snapshot,
    (name) => byNode.has(name),
    (node, device) => {
      const gone = byNode.get(node.name);
      const grants = device.grants.filter(({ claim }) => gone?.has(claim) !== true);
      return grants.length === device.grants.length ? device : { ...device, grants };
    },
  );
}

function holdsOf(statements: readonly Statement[], ended: readonly Ending[]): Hold[] {
  const freed = new Map<string, { memoryBytes: bigint; computePercent: number }>();
  for (const { statement } of ended) {
    for (const { uuid, memoryBytes, computePercent } of statement.devices) {
      const key = `${statement.node}/${uuid}`;
      const known = freed.get(key) ?? { memoryBytes: 0n, computePercent: 0 };
      freed.set(key, {
        memoryBytes: known.memoryBytes + memoryBytes,
        computePercent: known.computePercent + computePercent,
      });
    }
  }
  // Several members of a gang may share a device: what is freed there serves them one after the other.
  const holds: Hold[] = [];
  for (const { node, devices } of statements) {
    for (const { uuid, memoryBytes, computePercent } of devices) {
      const key = `${node}/${uuid}`;
      const left = freed.get(key) ?? { memoryBytes: 0n, computePercent: 0 };
      const memory = memoryBytes > left.memoryBytes ? memoryBytes - left.memoryBytes : 0n;
      const compute = Math.max(0, computePercent - left.computePercent);
      freed.set(key, {
        memoryBytes: left.memoryBytes > memoryBytes ? left.memoryBytes - memoryBytes : 0n,
        computePercent: Math.max(0, left.computePercent - computePercent),
      });
      if (memory > 0n || compute > 0) {
        holds.push({ node, uuid, memoryBytes: memory, computePercent: compute });
      }
    }
  }
  return holds;
}

function changeNodes(
  snapshot: Snapshot,
  isMeant: (name: string) => boolean,
  change: (node: NodeState, device: DeviceState) => DeviceState,
): Snapshot {
  return {
    ...snapshot,
    nodes: snapshot.nodes.map((node) =>
      isMeant(node.name) ? { ...node, devices: node.devices.map((device) => change(node, device)) } : node,
    ),
  };
}
