// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { place } from "../place.ts";
import type { ClaimRequest } from "../request.ts";
import type { NodeState, Snapshot } from "../snapshot.ts";
import { applyStatement, rollbackStatement, type Statement } from "../statement.ts";

const GiB = 1n << 30n;

function makeNode(name: string, devices: number): NodeState {
  return {
    name,
    isReady: true,
    isCordoned: false,
    devices: Array.from({ length: devices }, (_, index) => ({
      uuid: `GPU-${index}`,
      index,
      memoryBytes: 16n * GiB,
      isHealthy: true,
      grants: [],
    })),
  };
}

/** The best node by a scan over single-node pools, each too small to be ranked. */
function scan(snapshot: Snapshot, request: ClaimRequest): Statement | undefined {
  const statements = snapshot.nodes.flatMap((node) => place({ ...snapshot, nodes: [node] }, request) ?? []);
  const names = new Set(statements.map(({ node }) => node));
  const left = snapshot.nodes.filter(({ name }) => names.has(name));
  // Halves the nodes while more than one fits: each half is scanned, not ranked.
  for (let nodes = left; ; ) {
    if (nodes.length <= 16) {
      return place({ ...snapshot, nodes }, request);
    }
    const winners = [];
    for (let from = 0; from < nodes.length; from += 16) {
      const part = nodes.slice(from, from + 16);
      const winner = place({ ...snapshot, nodes: part }, request)?.node;
      winners.push(...part.filter(({ name }) => name === winner));
    }
    nodes = winners;
  }
}

const asks = fc.record({
  gpus: fc.constantFrom(1, 1, 2, 4),
  memoryPercent: fc.constantFrom(25, 50, 100),
  policy: fc.constantFrom("least-fragmentation", "binpack", "spread"),
});

const steps = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: asks.map((ask) => ({ kind: "place", ask }) as const) },
    { weight: 2, arbitrary: fc.nat().map((which) => ({ kind: "free", which }) as const) },
    { weight: 1, arbitrary: fc.nat().map((which) => ({ kind: "cordon", which }) as const) },
    { weight: 1, arbitrary: fc.constantFrom(-1, 1).map((count) => ({ kind: "grow", count }) as const) },
  ),
  { minLength: 1, maxLength: 40 },
);

test("a large pool gives a claim what a look at each of its nodes would, whatever happened before", () => {
  fc.assert(
    fc.property(fc.integer({ min: 32, max: 70 }), steps, (count, history) => {
      let pool: Snapshot = {
        nodes: Array.from({ length: count }, (_, number) => makeNode(`node-${number}`, 1 + (number % 4))),
      };
      const placed: Statement[] = [];
      for (const [number, step] of history.entries()) {
        switch (step.kind) {
          case "place": {
            const request = { ...step.ask, claim: `c${number}`, memoryBytes: 0n, computePercent: 0 };
            const statement = place(pool, request);
            expect(statement).toEqual(scan(pool, request));
            if (statement !== undefined) {
              pool = applyStatement(pool, statement);
              placed.push(statement);
            }
            break;
          }
          case "free": {
            const [statement] = placed.splice(step.which % Math.max(1, placed.length), 1);
            pool = statement === undefined ? pool : rollbackStatement(pool, statement);
            break;
          }
          case "cordon": {
            const position = step.which % pool.nodes.length;
            const nodes = pool.nodes.map((node, each) =>
              each === position ? { ...node, isCordoned: !node.isCordoned } : node,
            );
            pool = { ...pool, nodes };
            break;
          }
          case "grow": {
            const isLess =
              step.count < 0 && pool.nodes.at(-1)?.devices.every(({ grants }) => grants.length === 0);
            const nodes = isLess ? pool.nodes.slice(0, -1) : [...pool.nodes, makeNode(`new-${number}`, 2)];
            pool = { ...pool, nodes };
            break;
          }
        }
      }
    }),
    { numRuns: 60 },
  );
});
