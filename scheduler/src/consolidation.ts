// SPDX-License-Identifier: Apache-2.0

// Proposes moves of claims that free whole devices or nodes. It only advises; nothing is executed here.

import { isOpen, takesClaims } from "./filter.ts";
import { place } from "./place.ts";
import type { ClaimRequest } from "./request.ts";
import type { DeviceState, NodeState, Snapshot } from "./snapshot.ts";
import { applyStatement, type Placement, rollbackStatement, type Statement } from "./statement.ts";

/** The goal of the consolidation. */
export type ConsolidationGoal = "device" | "node";

/** A claim and the place to which it would move. */
export interface Move {
  readonly from: Statement;
  readonly to: Statement;
}

/** Moves that belong together, in order, and the devices that they free. */
export interface ConsolidationStep {
  readonly node: string;
  /** Ordinals of the devices of `node` that become free. */
  readonly devices: readonly number[];
  /** At least one. */
  readonly moves: readonly Move[];
}

export interface ConsolidationOptions {
  readonly goal: ConsolidationGoal;
  /** Upper bound on the moves of all steps together. */
  readonly maxMoves: number;
}

/** Upper bound on the places that are tried, so that the search also ends in a large pool full of small claims. */
const maxTries = 500;

/** A place that could become free, and the claims on it. */
interface Target {
  readonly node: NodeState;
  readonly devices: readonly DeviceState[];
  readonly claims: readonly string[];
  readonly usedBytes: bigint;
}

/**
 * Looks for the cheapest steps first: few claims to move, little memory to copy. A claim moves only to devices in use (for
 * whole nodes: to nodes in use), so no step undoes the gain of another, and it keeps its size and models.
 *
 * @param movable the claims that may move, by name, with their requests; all others stay where they are
 */
export function planConsolidation(
  snapshot: Snapshot,
  movable: ReadonlyMap<string, ClaimRequest>,
  { goal, maxMoves }: ConsolidationOptions,
): ConsolidationStep[] {
  const steps: ConsolidationStep[] = [];
  const settled = new Set<string>();
  let current = snapshot;
  let movesLeft = maxMoves;
  for (let tries = 0; tries < maxTries; tries++) {
    const target = targetsIn(current, movable, goal).find(
      (each) => !settled.has(nameOf(each)) && each.claims.length <= movesLeft,
    );
    if (target === undefined) {
      break;
    }
    settled.add(nameOf(target));
    const moves = clear(current, target, movable, goal);
    if (moves !== undefined) {
      for (const { from, to } of moves) {
        current = applyStatement(rollbackStatement(current, from), to);
        // A place that has received a claim is no longer a target: emptying it would move that claim twice.
        for (const { uuid } of to.devices) {
          settled.add(`${to.node} ${goal === "device" ? uuid : ""}`);
        }
      }
      movesLeft -= moves.length;
      const devices = target.devices.map(({ index }) => index);
      steps.push({ node: target.node.name, devices, moves });
    }
  }
  return steps;
}

function nameOf({ node, devices: [first, ...more] }: Target): string {
  return `${node.name} ${more.length === 0 ? (first?.uuid ?? "") : ""}`;
}

function targetsIn(
  { nodes }: Snapshot,
  movable: ReadonlyMap<string, ClaimRequest>,
  goal: ConsolidationGoal,
): Target[] {
  const targets = nodes.filter(isOpen).flatMap((node): Target[] => {
    const used = node.devices.filter(({ grants }) => grants.length > 0);
    const isWorthIt = node.devices.every(takesClaims);
    const places =
      goal === "device" ? used.filter(takesClaims).map((device) => [device]) : isWorthIt ? [used] : [];
    return places.map((devices) => ({
      node,
      devices,
      claims: [...new Set(devices.flatMap(({ grants }) => grants.map(({ claim }) => claim)))],
      usedBytes: devices.reduce(
        (sum, { grants }) => grants.reduce((all, each) => all + each.memoryBytes, sum),
        0n,
      ),
    }));
  });
  return targets
    .filter(({ claims }) => claims.length > 0 && claims.every((claim) => movable.has(claim)))
    .sort(
      (a, b) =>
        a.claims.length - b.claims.length ||
        (a.usedBytes < b.usedBytes ? -1 : a.usedBytes > b.usedBytes ? 1 : 0) ||
        (a.node.name < b.node.name ? -1 : a.node.name > b.node.name ? 1 : 0) ||
        (a.devices[0]?.index ?? 0) - (b.devices[0]?.index ?? 0),
    );
}

/** The moves that free the target; undefined when one of its claims has no other place. */
function clear(
  snapshot: Snapshot,
  target: Target,
  movable: ReadonlyMap<string, ClaimRequest>,
  goal: ConsolidationGoal,
): Move[] | undefined {
  const moves: Move[] = [];
  let trial = withoutFreePlaces(snapshot, target, goal);
  const largestFirst = [...target.claims].sort(
    (a, b) => sizeIn(target, b) - sizeIn(target, a) || (a < b ? -1 : 1),
  );
  for (const claim of largestFirst) {
    const from = holdingOf(target.node, claim);
    const request = movable.get(claim);
    const same = request && asHeld(request, from, target.node);
    if (same === undefined) {
      return undefined;
    }
    trial = rollbackStatement(trial, from);
    const to = place(trial, same);
    if (to === undefined) {
      return undefined;
    }
    trial = applyStatement(trial, to);
    moves.push({ from, to });
  }
  return moves;
}

/**
 * The request with the size and the device models that the claim holds, because its program has used both.
 *
 * @returns undefined when its vGPUs are not all alike
 */
function asHeld(request: ClaimRequest, { devices }: Statement, node: NodeState): ClaimRequest | undefined {
  const [first, ...others] = devices;
  const isLike = ({ memoryBytes, computePercent }: Placement) =>
    memoryBytes === first?.memoryBytes && computePercent === first.computePercent;
  if (first === undefined || !others.every(isLike)) {
    return undefined;
  }
  const models = devices.map(({ uuid }) => node.devices.find((device) => device.uuid === uuid)?.model ?? "");
  return {
    ...request,
    gpus: devices.length,
    memoryBytes: first.memoryBytes,
    memoryPercent: 0,
    computePercent: first.computePercent,
    constraints: { ...request.constraints, onlyModels: [...new Set(models)] },
  };
}

/** The snapshot in which claims can be placed neither on the target nor on free places. */
function withoutFreePlaces(snapshot: Snapshot, target: Target, goal: ConsolidationGoal): Snapshot {
  return {
    ...snapshot,
    nodes: snapshot.nodes.map((node) => {
      const isFree = node.devices.every(({ grants }) => grants.length === 0);
      if (goal === "node") {
        return isFree || node.name === target.node.name ? { ...node, isCordoned: true } : node;
      }
      const isTarget = (device: DeviceState): boolean =>
        node.name === target.node.name && target.devices.some(({ uuid }) => uuid === device.uuid);
      if (!node.devices.some((device) => device.grants.length === 0 || isTarget(device))) {
        return node;
      }
      const devices = node.devices.map((device) =>
        device.grants.length === 0 || isTarget(device) ? { ...device, isCordoned: true } : device,
      );
      return { ...node, devices };
    }),
  };
}

/** Everything that the claim holds on the node. */
function holdingOf(node: NodeState, claim: string): Statement {
  let labels: Statement["labels"];
  const devices = node.devices.flatMap(({ uuid, index, grants }) =>
    grants
      .filter((grant) => grant.claim === claim)
      .map(({ memoryBytes, computePercent, labels: own }) => {
        labels = own;
        return { uuid, index, memoryBytes, computePercent };
      }),
  );
  return { claim, node: node.name, devices, ...(labels === undefined ? {} : { labels }) };
}

function sizeIn({ node }: Target, claim: string): number {
  return holdingOf(node, claim).devices.reduce((sum, { memoryBytes }) => sum + Number(memoryBytes), 0);
}
