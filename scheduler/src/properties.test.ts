// SPDX-License-Identifier: Apache-2.0

// Invariants for every pool and every history.

import { mayKnowAll, renderReason } from "@millpond/api";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { explainImpossible, explainWaiting } from "./explain.ts";
import { place } from "./place.ts";
import type { ClaimRequest } from "./request.ts";
import type { NodeState, Snapshot } from "./snapshot.ts";
import { applyStatement, rollbackStatement, type Statement } from "./statement.ts";

const MiB = 1n << 20n;

const memories = fc.oneof(
  fc.constantFrom(1n * MiB, 512n * MiB, 16384n * MiB, 81920n * MiB),
  fc.bigInt({ min: MiB, max: 200_000n * MiB }),
);

const pools: fc.Arbitrary<Snapshot> = fc
  .array(
    fc.record({
      isReady: fc.integer({ min: 0, max: 9 }).map((value) => value > 0),
      isCordoned: fc.integer({ min: 0, max: 9 }).map((value) => value === 0),
      devices: fc.array(
        fc.record({ memoryBytes: memories, isHealthy: fc.integer({ min: 0, max: 9 }).map((n) => n > 0) }),
        {
          maxLength: 5,
        },
      ),
    }),
    { maxLength: 4 },
  )
  .map((nodes) => ({
    nodes: nodes.map(
      (node, position): NodeState => ({
        ...node,
        name: `node-${position}`,
        devices: node.devices.map((device, index) => ({
          ...device,
          uuid: `GPU-${index}`,
          index,
          grants: [],
        })),
      }),
    ),
  }));

const asks = fc.record({
  gpus: fc.oneof({ weight: 3, arbitrary: fc.constant(1) }, fc.integer({ min: 1, max: 6 })),
  memory: fc.oneof(
    fc.constant({ memoryBytes: 0n, memoryPercent: 0 }),
    memories.map((memoryBytes) => ({ memoryBytes, memoryPercent: 0 })),
    fc.bigInt({ min: MiB, max: 8192n * MiB }).map((memoryBytes) => ({ memoryBytes, memoryPercent: 0 })),
    fc.integer({ min: 1, max: 100 }).map((memoryPercent) => ({ memoryBytes: 0n, memoryPercent })),
  ),
  computePercent: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 100 })),
});

type Ask = typeof asks extends fc.Arbitrary<infer T> ? T : never;

function toRequest(ask: Ask, claim: string): ClaimRequest {
  return { claim, gpus: ask.gpus, ...ask.memory, computePercent: ask.computePercent };
}

/** Claims and releases; a release picks one of the placed claims by number. */
const histories = fc.array(
  fc.oneof(
    { weight: 2, arbitrary: asks.map((ask) => ({ kind: "claim", ask }) as const) },
    { weight: 1, arbitrary: fc.nat().map((pick) => ({ kind: "release", pick }) as const) },
  ),
  { maxLength: 40 },
);

/** The rules that a snapshot violates, as text. */
function violations(snapshot: Snapshot): string[] {
  return snapshot.nodes.flatMap((node) =>
    node.devices.flatMap((device) => {
      const memory = device.grants.reduce((sum, grant) => sum + grant.memoryBytes, 0n);
      const compute = device.grants.reduce((sum, grant) => sum + grant.computePercent, 0);
      const claims = new Set(device.grants.map((grant) => grant.claim));
      const isOpen = node.isReady && !node.isCordoned && device.isHealthy;
      return [
        memory > device.memoryBytes ? "memory over-allocated" : "",
        compute > 100 ? "compute over-allocated" : "",
        claims.size < device.grants.length ? "two vGPUs of a claim on one device" : "",
        device.grants.some((grant) => grant.memoryBytes < MiB || grant.computePercent < 1)
          ? "an empty grant"
          : "",
        !isOpen && device.grants.length > 0 ? "a grant on a closed device" : "",
      ].filter((text) => text !== "");
    }),
  );
}

type HistoryStep = typeof histories extends fc.Arbitrary<(infer T)[]> ? T : never;

function runHistory(pool: Snapshot, history: readonly HistoryStep[]) {
  let snapshot = pool;
  const placed: Statement[] = [];
  const broken: string[] = [];
  for (const [position, step] of history.entries()) {
    if (step.kind === "claim") {
      const request = toRequest(step.ask, `claim-${position}`);
      const statement = place(snapshot, request);
      if (statement !== undefined) {
        if (statement.devices.length !== request.gpus) {
          broken.push("not as many vGPUs as asked");
        }
        const after = applyStatement(snapshot, statement);
        try {
          expect(rollbackStatement(after, statement)).toEqual(snapshot);
        } catch {
          broken.push("rollback is not the identity");
        }
        snapshot = after;
        placed.push(statement);
      } else if (renderReason(explainWaiting(snapshot, request), mayKnowAll).length < 10) {
        broken.push("no reason");
      }
    } else if (placed.length > 0) {
      const [statement] = placed.splice(step.pick % placed.length, 1);
      if (statement !== undefined) {
        snapshot = rollbackStatement(snapshot, statement);
      }
    }
    broken.push(...violations(snapshot));
  }
  return { snapshot, placed, broken };
}

test("no history over-allocates, and every statement can be rolled back", () => {
  fc.assert(
    fc.property(pools, histories, (pool, history) => {
      expect(runHistory(pool, history).broken).toEqual([]);
    }),
    { numRuns: 300 },
  );
});

test("when all claims of a history are released, the pool is as it was", () => {
  fc.assert(
    fc.property(pools, histories, (pool, history) => {
      const { snapshot, placed } = runHistory(pool, history);
      expect(placed.reduce(rollbackStatement, snapshot)).toEqual(pool);
    }),
  );
});

test("the same pool gives the same statement, in whatever order its nodes and devices are listed", () => {
  fc.assert(
    fc.property(pools, histories, asks, (pool, history, ask) => {
      const { snapshot } = runHistory(pool, history);
      const request = toRequest(ask, "x");
      const turned = {
        nodes: snapshot.nodes.toReversed().map((node) => ({ ...node, devices: node.devices.toReversed() })),
      };
      expect(place(snapshot, request)).toEqual(place(structuredClone(snapshot), request));
      expect(place(turned, request)).toEqual(place(snapshot, request));
    }),
  );
});

test("a claim that an empty open pool could hold is placed in it, and no other is", () => {
  fc.assert(
    fc.property(pools, asks, (pool, ask) => {
      const open = {
        nodes: pool.nodes.map((node) => ({
          ...node,
          isReady: true,
          isCordoned: false,
          devices: node.devices.map((device) => ({ ...device, isHealthy: true })),
        })),
      };
      const request = toRequest(ask, "x");
      const isPossible = open.nodes.length > 0 && explainImpossible(open, request) === undefined;
      expect(place(open, request) !== undefined).toBe(isPossible);
    }),
    { numRuns: 300 },
  );
});

test("what is impossible is never placed, however busy or closed the pool is", () => {
  fc.assert(
    fc.property(pools, histories, asks, (pool, history, ask) => {
      const { snapshot } = runHistory(pool, history);
      const request = toRequest(ask, "x");
      fc.pre(explainImpossible(pool, request) !== undefined);
      expect(place(snapshot, request)).toBeUndefined();
      expect(explainImpossible(snapshot, request)).toEqual(explainImpossible(pool, request));
    }),
  );
});

test("a statement from another snapshot is refused", () => {
  const pool: Snapshot = {
    nodes: [
      {
        name: "node-a",
        isReady: true,
        isCordoned: false,
        devices: [{ uuid: "GPU-0", index: 0, memoryBytes: MiB, isHealthy: true, grants: [] }],
      },
    ],
  };
  const statement = place(
    pool,
    toRequest({ gpus: 1, memory: { memoryBytes: 0n, memoryPercent: 0 }, computePercent: 0 }, "a"),
  );
  if (statement === undefined) {
    throw new Error("nothing was placed");
  }
  const full = applyStatement(pool, statement);
  expect(() => applyStatement(full, statement)).toThrow(RangeError);
  expect(() => applyStatement(full, { ...statement, claim: "b" })).toThrow(RangeError);
  expect(() => applyStatement(pool, { ...statement, node: "node-b" })).toThrow(RangeError);
  expect(() => rollbackStatement(pool, statement)).toThrow(RangeError);
  const elsewhere = { ...statement, devices: statement.devices.map((each) => ({ ...each, uuid: "GPU-9" })) };
  expect(() => applyStatement(pool, elsewhere)).toThrow(RangeError);
  expect(() => rollbackStatement(full, elsewhere)).toThrow(RangeError);
});
