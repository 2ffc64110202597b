// SPDX-License-Identifier: Apache-2.0

// Capacity that is reserved for a waiting unit: what is free now and what others will release.

import type { ReservationOwner } from "./tree.ts";
import type { Labels } from "../labels.ts";
import type { DeviceState, Free, NodeState, Snapshot } from "../snapshot.ts";
import type { Statement } from "../statement.ts";
import { compareEndings, type Ending, type EndingsOn } from "./holdings.ts";
import { placeUnit, shapeOfUnit, type Unit } from "./unit.ts";

/** Capacity of a device that must stay free. */
interface Hold {
  readonly keeper: Reservation;
  readonly node: string;
  readonly uuid: string;
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

export interface Reservation {
  readonly unit: Unit;
  /** The latest time at which there is room; null: unknown. */
  readonly startsAt: number | null;
  readonly statements: readonly Statement[];
  /** The ends of claims that it needs, on the nodes where it is placed. */
  readonly ended: readonly Ending[];
}

/**
 * Finds the room that becomes free first when claims release their allocations: those with a known end in that order, then
 * the others, oldest first. The order is stable while time passes and claims arrive elsewhere, so a unit gets its turn no
 * later than when the claims that are in the pool now have ended.
 *
 * @param before reservations that are served first, also from released capacity
 */
export function reserve(
  snapshot: Snapshot,
  unit: Unit,
  endingsOn: EndingsOn,
  before: readonly Reservation[],
): Reservation | undefined {
  const future: Future = { snapshot, endingsOn, before };
  const least = isOfOneNode(unit) ? leastOnOneNode(future, unit) : leastOf(future, unit);
  if (least === undefined) {
    return undefined;
  }
  const { ended, statements } = least;
  const last = ended.at(-1);
  const nodes = new Set(statements.map(({ node }) => node));
  return {
    unit,
    startsAt: last === undefined ? Number.NEGATIVE_INFINITY : last.endsAt,
    statements,
    ended: ended.filter(({ statement }) => nodes.has(statement.node)),
  };
}

/** The capacity that will become free, and the reservations on it. */
interface Future {
  readonly snapshot: Snapshot;
  readonly endingsOn: EndingsOn;
  readonly before: readonly Reservation[];
}

/** The snapshot after these claims have ended, whose capacity earlier reservations may use in part. */
function afterEndings({ snapshot, before }: Future, ended: readonly Ending[]): Snapshot {
  const names = new Set(ended.map(({ statement }) => statement.claim));
  const staying = before.map((each) => ({
    ...each,
    statements: each.statements.filter(({ claim }) => !names.has(claim)),
  }));
  return withHolds(withoutGrants(snapshot, ended), staying);
}

/** The smallest number of claims, in order of their ends, whose end makes room, and the placement after them. */
interface Least {
  readonly ended: readonly Ending[];
  readonly statements: readonly Statement[];
}

/** Whether all of it must be on one node, wherever other claims are. */
function isOfOneNode({ members, first }: Unit): boolean {
  const isTogether = members.length === 1 || first.isSameNode;
  return isTogether && members.every(({ request }) => request.constraints?.affinity === undefined);
}

/** For a unit that needs one node, each node is considered by itself: the unit needs some of the claims there to end. */
function leastOnOneNode(future: Future, unit: Unit): Least | undefined {
  const { snapshot, endingsOn } = future;
  let best:
    | { readonly node: NodeState; readonly ended: readonly Ending[]; readonly last: Ending }
    | undefined;
  const enoughOn = counterFor(future, unit);
  for (const node of snapshot.nodes) {
    const endings = endingsOn(node.name);
    const enough = enoughOn(node, endings);
    if (enough === 0) {
      // There is already room: the best of the nodes is chosen.
      const statements =
        placeUnit(afterEndings(future, []), unit) ?? placeUnit(onNode(future, node, []), unit);
      return statements && { ended: [], statements };
    }
    const last = enough === null ? undefined : endings[enough - 1];
    if (last !== undefined && (best === undefined || compareEndings(last, best.last) < 0)) {
      best = { node, ended: endings.slice(0, enough ?? 0), last };
    }
  }
  const statements = best && placeUnit(onNode(future, best.node, best.ended), unit);
  return best && statements && { ended: best.ended, statements };
}

/** Results for a node with these ends, cached by the node object: a changed node is another object. */
interface Counted {
  readonly endings: readonly Ending[];
  /** How many claims must end, by shape; null: all of them are not sufficient. */
  readonly enough: Map<string, number | null>;
}

/** Upper bound on the unit shapes that are cached for one node. */
const maxRemembered = 64;
const counted = new WeakMap<NodeState, Counted>();

/** How many of a node's claims must end so that the unit fits; null: all of them are not sufficient. */
function counterFor(future: Future, unit: Unit) {
  const count = (node: NodeState, endings: readonly Ending[]) => {
    const tryFirst = (enough: number) => placeUnit(onNode(future, node, endings.slice(0, enough)), unit);
    return leastFitting(tryFirst, endings.length, tryFirst(endings.length)) ?? null;
  };
  if (unit.members.length > 1) {
    // Whether several members fit depends on where the first ones go, which the workload determines, so the result is not
    // cached.
    return count;
  }
  const shape = shapeOfUnit(unit);
  const kept = new Set(future.before.flatMap(({ statements }) => statements.map(({ node }) => node)));
  return (node: NodeState, endings: readonly Ending[]) => {
    if (kept.has(node.name)) {
      return count(node, endings);
    }
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

/** The node alone, after these claims have released their parts of it. */
function onNode(future: Future, node: NodeState, ended: readonly Ending[]): Snapshot {
  return afterEndings({ ...future, snapshot: { ...future.snapshot, nodes: [node] } }, ended);
}

/** For a unit that may span nodes. Usually few claims must end, so the search gallops from the beginning. */
function leastOf(future: Future, unit: Unit): Least | undefined {
  const { snapshot, endingsOn } = future;
  const ordered = snapshot.nodes.flatMap(({ name }) => endingsOn(name)).sort(compareEndings);
  const tryFirst = (count: number) => placeUnit(afterEndings(future, ordered.slice(0, count)), unit);
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

/** More released capacity fits more, so this searches backwards from a sufficient number of ended claims. */
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

/** The claim or gang that a reservation belongs to. */
export function ownerOfReservation({ unit }: Pick<Reservation, "unit">, now: number): ReservationOwner {
  return { keeper: unit.holder, waitedSeconds: now - unit.waitingSince };
}

/** The snapshot with reserved capacity marked as allocated. */
export function withHolds(snapshot: Snapshot, reservations: readonly Reservation[]): Snapshot {
  const apart = withRepelled(snapshot, reservations);
  const byNode = Map.groupBy(holdsOf(snapshot, reservations), ({ node }) => node);
  if (byNode.size === 0) {
    return apart;
  }
  return changeNodes(
    apart,
    (name) => byNode.has(name),
    (node, device) => {
      const own = (byNode.get(node.name) ?? []).filter(({ uuid }) => uuid === device.uuid);
      return own.length === 0
        ? device
        : {
            ...device,
            grants: [
              ...device.grants,
              ...own.map(({ keeper, memoryBytes, computePercent }) => ({
                claim: `reserved for ${keeper.unit.name}`,
                memoryBytes,
                computePercent,
              })),
            ],
          };
    },
  );
}

/** The snapshot in which no claim is placed against the anti-affinity of a reservation. */
function withRepelled(snapshot: Snapshot, reservations: readonly Reservation[]): Snapshot {
  const byNode = new Map<string, Labels[]>();
  for (const { unit, statements } of reservations) {
    for (const { claim, node } of statements) {
      const { antiAffinity } =
        unit.members.find(({ request }) => request.claim === claim)?.request.constraints ?? {};
      if (antiAffinity !== undefined) {
        byNode.set(node, [...(byNode.get(node) ?? []), antiAffinity]);
      }
    }
  }
  return byNode.size === 0
    ? snapshot
    : {
        ...snapshot,
        nodes: snapshot.nodes.map((node) => {
          const repelled = byNode.get(node.name);
          return repelled === undefined ? node : { ...node, repelled };
        }),
      };
}

/** The snapshot after these claims have released their allocations. */
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

/**
 * The capacity that must stay free: what the reservations need beyond what is still held by the claims that must end first.
 * Released capacity counts for one reservation only, in their order.
 */
export function holdsOf({ nodes }: Snapshot, reservations: readonly Reservation[]): Hold[] {
  if (reservations.length === 0) {
    return [];
  }
  const holds: Hold[] = [];
  const byName = new Map(nodes.map((node) => [node.name, node]));
  /** Capacity of a device that becomes free and is already promised. */
  const promised = new Map<string, Free>();
  for (const keeper of reservations) {
    const ended = Map.groupBy(keeper.ended, ({ statement }) => statement.node);
    for (const { node, devices } of keeper.statements) {
      const claims = new Set(ended.get(node)?.map(({ statement }) => statement.claim));
      for (const { uuid, memoryBytes, computePercent } of devices) {
        const device = byName.get(node)?.devices.find((each) => each.uuid === uuid);
        if (device !== undefined) {
          const key = `${node}/${uuid}`;
          const gone = promised.get(key) ?? nothing;
          const coming = device.grants.filter(({ claim }) => claims.has(claim)).reduce(addFree, nothing);
          const part = lesserOf({ memoryBytes, computePercent }, atLeastNothing(subtractFree(coming, gone)));
          promised.set(key, addFree(gone, part));
          const rest = subtractFree({ memoryBytes, computePercent }, part);
          if (rest.memoryBytes > 0n || rest.computePercent > 0) {
            holds.push({ keeper, node, uuid, ...rest });
          }
        }
      }
    }
  }
  return holds;
}

const nothing: Free = { memoryBytes: 0n, computePercent: 0 };

function addFree(a: Free, b: Free): Free {
  return {
    memoryBytes: a.memoryBytes + b.memoryBytes,
    computePercent: a.computePercent + b.computePercent,
  };
}

function subtractFree(a: Free, b: Free): Free {
  return {
    memoryBytes: a.memoryBytes - b.memoryBytes,
    computePercent: a.computePercent - b.computePercent,
  };
}

function lesserOf(a: Free, b: Free): Free {
  return {
    memoryBytes: a.memoryBytes < b.memoryBytes ? a.memoryBytes : b.memoryBytes,
    computePercent: Math.min(a.computePercent, b.computePercent),
  };
}

function atLeastNothing({ memoryBytes, computePercent }: Free): Free {
  return { memoryBytes: memoryBytes > 0n ? memoryBytes : 0n, computePercent: Math.max(0, computePercent) };
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
