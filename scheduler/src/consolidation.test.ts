// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type ConsolidationGoal, planConsolidation } from "./consolidation.ts";
import { allowsNeighbours } from "./constraints.ts";
import { place } from "./place.ts";
import type { ClaimRequest } from "./request.ts";
import type { NodeState, Snapshot } from "./snapshot.ts";
import { applyStatement, rollbackStatement, type Statement } from "./statement.ts";

const GiB = 1n << 30n;

function request(claim: string, gpus: number, memoryPercent: number): ClaimRequest {
  return { claim, gpus, memoryBytes: 0n, memoryPercent, computePercent: 0 };
}

function node(name: string, count: number): NodeState {
  const devices = Array.from({ length: count }, (_, index) => ({
    uuid: `GPU-${index}`,
    index,
    memoryBytes: 16n * GiB,
    isHealthy: true,
    grants: [],
  }));
  return { name, isReady: true, isCordoned: false, devices };
}

function pool(...counts: readonly number[]): Snapshot {
  return { nodes: counts.map((count, position) => node(`node-${position}`, count)) };
}

/** Every second node has devices of another model and half the size. */
function mixedPool(...counts: readonly number[]): Snapshot {
  const { nodes } = pool(...counts);
  const kinds = [
    { model: "A", memoryBytes: 16n * GiB },
    { model: "B", memoryBytes: 8n * GiB },
  ];
  return {
    nodes: nodes.map((each, position) => ({
      ...each,
      devices: each.devices.map((device) => ({ ...device, ...kinds[position % 2] })),
    })),
  };
}

function deviceOf({ nodes }: Snapshot, onNode: string, uuid: string) {
  return nodes.find(({ name }) => name === onNode)?.devices.find((device) => device.uuid === uuid);
}

/** Puts the claim on exactly that device. */
function put(snapshot: Snapshot, asked: ClaimRequest, onNode: string, index: number): Snapshot {
  const memoryBytes = (16n * GiB * BigInt(asked.memoryPercent)) / 100n;
  const device = { uuid: `GPU-${index}`, index, memoryBytes, computePercent: asked.memoryPercent };
  return applyStatement(snapshot, { claim: asked.claim, node: onNode, devices: [device] });
}

function freeDevices({ nodes }: Snapshot): number {
  return nodes.flatMap(({ devices }) => devices).filter(({ grants }) => grants.length === 0).length;
}

function freeNodes({ nodes }: Snapshot): number {
  return nodes.filter(({ devices }) => devices.every(({ grants }) => grants.length === 0)).length;
}

test("two devices that are half full become one", () => {
  const asked = [request("a", 1, 50), request("b", 1, 40)] as const;
  const scattered = put(put(pool(2), asked[0], "node-0", 0), asked[1], "node-0", 1);
  const movable = new Map(asked.map((each) => [each.claim, each]));
  const [step, ...more] = planConsolidation(scattered, movable, { goal: "device", maxMoves: 10 });
  expect(more).toEqual([]);
  // The claim with less memory to copy moves.
  expect(step?.devices).toEqual([1]);
  expect(step?.moves.map(({ to }) => [to.claim, to.devices[0]?.index])).toEqual([["b", 0]]);
});

test("what may not move, does not fit elsewhere or would only change places stays", () => {
  const asked = [request("a", 1, 60), request("b", 1, 60), request("c", 1, 100)] as const;
  const full = put(put(put(pool(2, 2), asked[0], "node-0", 0), asked[1], "node-0", 1), asked[2], "node-1", 0);
  const movable = new Map(asked.map((each) => [each.claim, each]));
  expect(planConsolidation(full, movable, { goal: "device", maxMoves: 10 })).toEqual([]);
  const small = put(full, request("d", 1, 50), "node-1", 1);
  expect(planConsolidation(small, movable, { goal: "device", maxMoves: 10 })).toEqual([]);
  expect(planConsolidation(small, movable, { goal: "device", maxMoves: 0 })).toEqual([]);
});

test("a node becomes free when all on it fit on nodes in use", () => {
  const asked = [request("a", 1, 100), request("b", 1, 100), request("c", 1, 30)] as const;
  const spread = put(
    put(put(pool(2, 2, 2), asked[0], "node-0", 0), asked[1], "node-1", 0),
    asked[2],
    "node-1",
    1,
  );
  const movable = new Map(asked.map((each) => [each.claim, each]));
  const steps = planConsolidation(spread, movable, { goal: "node", maxMoves: 10 });
  expect(steps).toHaveLength(0);
  const roomy = put(put(pool(2, 3, 2), asked[0], "node-0", 0), asked[1], "node-1", 0);
  const [step] = planConsolidation(roomy, movable, { goal: "node", maxMoves: 10 });
  expect(step?.node).toBe("node-0");
  expect(step?.moves[0]?.to.node).toBe("node-1");
});

test("what runs keeps its size and the model of its devices", () => {
  const { nodes } = pool(1, 1, 1);
  const devices = [
    { model: "A", memoryBytes: 16n * GiB },
    { model: "A", memoryBytes: 8n * GiB },
    { model: "B", memoryBytes: 32n * GiB },
  ];
  const mixed = {
    nodes: nodes.map((each, position) => ({
      ...each,
      devices: each.devices.map((device) => ({ ...device, ...devices[position] })),
    })),
  };
  const grant = (claim: string, percent: number, onNode: number) => ({
    claim,
    node: `node-${onNode}`,
    devices: [
      {
        uuid: "GPU-0",
        index: 0,
        memoryBytes: ((devices[onNode]?.memoryBytes ?? 0n) * BigInt(percent)) / 100n,
        computePercent: percent,
      },
    ],
  });
  // Half of the first device would be the whole second one, and the third is of another model.
  const grants = [grant("a", 50, 0), grant("b", 25, 1), grant("c", 25, 2)];
  const used = grants.reduce(applyStatement, mixed);
  const movable = new Map(["a", "b", "c"].map((name, n) => [name, request(name, 1, n === 0 ? 50 : 25)]));
  const [step, ...more] = planConsolidation(used, movable, { goal: "device", maxMoves: 10 });
  expect(more).toEqual([]);
  expect(step).toMatchObject({ node: "node-1", moves: [{ to: { claim: "b", node: "node-0" } }] });
  expect(step?.moves[0]?.to.devices[0]?.memoryBytes).toBe(2n * GiB);
});

test("after any plan everybody holds what he held, and more is free than before", () => {
  fc.assert(
    fc.property(
      fc.constantFrom<ConsolidationGoal>("device", "node"),
      fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 5 }),
      fc.array(
        fc.record({
          gpus: fc.constantFrom(1, 1, 1, 2),
          percent: fc.constantFrom(10, 25, 40, 60, 100),
          leaves: fc.boolean(),
          mayMove: fc.constantFrom(true, true, true, false),
          isExclusive: fc.constantFrom(false, false, false, true),
          team: fc.constantFrom("x", "y"),
          isShy: fc.constantFrom(false, false, true),
        }),
        { maxLength: 20 },
      ),
      fc.integer({ min: 0, max: 12 }),
      (goal, counts, claims, maxMoves) => {
        let snapshot = mixedPool(...counts);
        const movable = new Map<string, ClaimRequest>();
        const left: (() => void)[] = [];
        claims.forEach(({ gpus, percent, leaves, mayMove, isExclusive, team, isShy }, position) => {
          const asked = {
            ...request(`claim-${position}`, gpus, percent),
            policy: "spread" as const,
            labels: { team },
            constraints: { isExclusive, ...(isShy ? { antiAffinity: { team } } : {}) },
          };
          const statement = place(snapshot, asked);
          if (statement === undefined) {
            return;
          }
          snapshot = applyStatement(snapshot, statement);
          if (leaves) {
            left.push(() => {
              snapshot = rollbackStatement(snapshot, statement);
            });
          } else if (mayMove) {
            movable.set(asked.claim, { ...asked, policy: "least-fragmentation" });
          }
        });
        for (const leave of left) {
          leave();
        }
        const steps = planConsolidation(snapshot, movable, { goal, maxMoves });
        expect(planConsolidation(snapshot, movable, { goal, maxMoves })).toEqual(steps);

        let after = snapshot;
        for (const { moves } of steps) {
          expect(moves.length).toBeGreaterThan(0);
          for (const { from, to } of moves) {
            expect(movable.has(from.claim)).toBe(true);
            expect(to.claim).toBe(from.claim);
            expect(to.devices.map(({ memoryBytes }) => memoryBytes)).toEqual(
              from.devices.map(({ memoryBytes }) => memoryBytes),
            );
            const modelsOf = ({ node: name, devices }: Statement) =>
              devices.map(({ uuid }) => deviceOf(after, name, uuid)?.model);
            expect(modelsOf(from)).toEqual(expect.arrayContaining(modelsOf(to)));
            const asked = movable.get(to.claim);
            const without = rollbackStatement(after, from);
            const there = without.nodes.find(({ name }) => name === to.node);
            const isAlone = to.devices.every(
              ({ uuid }) => deviceOf(without, to.node, uuid)?.grants.length === 0,
            );
            expect(asked?.constraints?.isExclusive !== true || isAlone).toBe(true);
            expect(there !== undefined && allowsNeighbours(asked?.constraints, there)).toBe(true);
            after = applyStatement(without, to);
          }
        }
        expect(steps.reduce((sum, { moves }) => sum + moves.length, 0)).toBeLessThanOrEqual(maxMoves);
        const count = goal === "node" ? freeNodes : freeDevices;
        expect(count(after)).toBeGreaterThanOrEqual(count(snapshot) + steps.length);
        for (const step of steps) {
          const freed = after.nodes.find(({ name }) => name === step.node)?.devices;
          expect(step.devices.every((index) => freed?.[index]?.grants.length === 0)).toBe(true);
        }
      },
    ),
    { numRuns: 200 },
  );
});
