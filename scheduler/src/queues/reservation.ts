// SPDX-License-Identifier: Apache-2.0

// Room that is kept for a unit that has to wait: what is free now and what others give back.

import type { DeviceState, NodeState, Snapshot } from "../snapshot.ts";
import type { Statement } from "../statement.ts";
import { placeUnit, type Unit } from "./unit.ts";

/** A claim, or what is left of one, that gives back what it holds. */
export interface Ending {
  readonly statement: Statement;
  /** Null: nobody knows when. */
  readonly endsAt: number | null;
  /** Of those of which nobody knows, who began first is expected to end first. */
  readonly beganAt: number;
}

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
  /** Those who have to end before. */
  readonly ended: readonly Ending[];
  readonly holds: readonly Hold[];
}

/**
 * Finds the room that is there first when claims give back what they hold: those whose end is known in that order, then
 * the others, oldest first. The order stays the same while time passes and claims come elsewhere, so a unit's turn comes
 * no later than when the claims that are in the pool now have ended.
 */
export function reserve(snapshot: Snapshot, unit: Unit, endings: readonly Ending[]): Reservation | undefined {
  const ordered = endings.toSorted(
    (a, b) =>
      (a.endsAt ?? Number.POSITIVE_INFINITY) - (b.endsAt ?? Number.POSITIVE_INFINITY) ||
      a.beganAt - b.beganAt ||
      (a.statement.claim < b.statement.claim ? -1 : 1),
  );
  const least = isOfOneNode(unit)
    ? leastOnOneNode(snapshot, unit, ordered)
    : leastOf(snapshot, unit, ordered);
  if (least === undefined) {
    return undefined;
  }
  const { enough, statements } = least;
  const ended = ordered.slice(0, enough);
  const last = ended.at(-1);
  return {
    unit,
    startsAt: last === undefined ? Number.NEGATIVE_INFINITY : last.endsAt,
    statements,
    ended,
    holds: holdsOf(statements, ended),
  };
}

/** How many of the endings have to be there, at least, and what is placed then. */
interface Least {
  readonly enough: number;
  readonly statements: readonly Statement[];
}

/** Whether it is all on one node, wherever other claims are. */
function isOfOneNode({ members, first }: Unit): boolean {
  const isTogether = members.length === 1 || first.isSameNode;
  return isTogether && members.every(({ request }) => request.constraints?.affinity === undefined);
}

/**
 * For a unit that needs one node, each node is looked at by itself: it needs some of the endings that are its own. A node
 * that cannot do it with those that come before the best found so far is passed over.
 */
function leastOnOneNode(snapshot: Snapshot, unit: Unit, ordered: readonly Ending[]): Least | undefined {
  const positions = new Map<string, number[]>();
  for (const [position, { statement }] of ordered.entries()) {
    const own = positions.get(statement.node);
    if (own === undefined) {
      positions.set(statement.node, [position]);
    } else {
      own.push(position);
    }
  }
  let best: Least | undefined;
  for (const node of snapshot.nodes) {
    const before = (best?.enough ?? Number.POSITIVE_INFINITY) - 1;
    const own = (positions.get(node.name) ?? []).filter((position) => position < before);
    const names = own.map((position) => ordered[position]?.statement.claim ?? "");
    const tryOn = (count: number) =>
      placeUnit({ ...snapshot, nodes: [withoutClaims(node, names.slice(0, count))] }, unit);
    const found = leastFitting(tryOn, own.length, tryOn(own.length));
    if (found?.enough === 0) {
      // There is room already: then the best of the nodes is taken.
      return { enough: 0, statements: placeUnit(snapshot, unit) ?? found.statements };
    }
    if (found !== undefined) {
      best = { enough: (own[found.enough - 1] ?? 0) + 1, statements: found.statements };
    }
  }
  return best;
}

/** For a unit that may span nodes. Mostly few have to end, so the search goes out from the beginning. */
function leastOf(snapshot: Snapshot, unit: Unit, ordered: readonly Ending[]): Least | undefined {
  const tryFirst = (count: number) => placeUnit(withoutGrants(snapshot, ordered.slice(0, count)), unit);
  let enough = 0;
  let statements = tryFirst(0);
  while (statements === undefined && enough < ordered.length) {
    enough = Math.min(ordered.length, Math.max(1, 2 * enough));
    statements = tryFirst(enough);
  }
  return leastFitting(tryFirst, enough, statements);
}

/** The more is given back, the more fits: goes back from a number of endings that is enough. */
function leastFitting(
  tryFirst: (count: number) => readonly Statement[] | undefined,
  most: number,
  withMost: readonly Statement[] | undefined,
): Least | undefined {
  let tooFew = -1;
  let enough = most;
  let statements = withMost;
  while (statements !== undefined && enough - tooFew > 1) {
    const middle = Math.floor((tooFew + enough) / 2);
    const fitting = tryFirst(middle);
    if (fitting === undefined) {
      tooFew = middle;
    } else {
      enough = middle;
      statements = fitting;
    }
  }
  return statements && { enough, statements };
}

/** So many sets of claims that have ended are remembered of one node. */
const maxRemembered = 16;

/** Nodes without some of their claims, by the names of these: looked at again for as long as the node is what it is. */
const reducedNodes = new WeakMap<NodeState, Map<string, NodeState>>();

function withoutClaims(node: NodeState, names: readonly string[]): NodeState {
  if (names.length === 0) {
    return node;
  }
  const known = reducedNodes.get(node) ?? new Map<string, NodeState>();
  reducedNodes.set(node, known);
  const key = names.join("\n");
  let reduced = known.get(key);
  if (reduced === undefined) {
    const gone = new Set(names);
    const devices = node.devices.map((device) => ({
      ...device,
      grants: device.grants.filter(({ claim }) => !gone.has(claim)),
    }));
    reduced = { ...node, devices };
    if (known.size >= maxRemembered) {
      known.clear();
    }
    known.set(key, reduced);
  }
  return reduced;
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
