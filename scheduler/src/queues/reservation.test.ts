// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { Grant, Snapshot } from "../snapshot.ts";
import type { WaitingClaim } from "./claim.ts";
import { compareEndings, type Ending } from "./holdings.ts";
import { reserve, withoutGrants } from "./reservation.ts";
import { makeUnits, placeUnit } from "./unit.ts";

const GiB = 1n << 30n;
const memoryBytes = 16n * GiB;

/** Claims that hold parts of devices: which device, how much, and when each ends. */
const held = fc.array(
  fc.record({
    node: fc.nat({ max: 3 }),
    device: fc.nat({ max: 3 }),
    percent: fc.constantFrom(25, 50, 100),
    endsAt: fc.option(fc.integer({ min: 100, max: 110 })),
    beganAt: fc.integer({ min: 0, max: 5 }),
  }),
  { maxLength: 40 },
);

const asks = fc.record({
  gpus: fc.integer({ min: 1, max: 4 }),
  percent: fc.constantFrom(30, 60, 100),
  members: fc.constantFrom(1, 1, 2),
  isSameNode: fc.boolean(),
});

function makePool(claims: typeof held extends fc.Arbitrary<infer T> ? T : never) {
  const grants = new Map<string, Grant[]>();
  const endings: Ending[] = [];
  for (const [number, { node, device, percent, endsAt, beganAt }] of claims.entries()) {
    const own = grants.get(`${node}/${device}`) ?? [];
    grants.set(`${node}/${device}`, own);
    if (own.reduce<number>((sum, { computePercent }) => sum + computePercent, percent) > 100) {
      continue;
    }
    const share = { memoryBytes: (memoryBytes * BigInt(percent)) / 100n, computePercent: percent };
    own.push({ claim: `c${number}`, ...share });
    const devices = [{ uuid: `GPU-${device}`, index: device, ...share }];
    endings.push({ statement: { claim: `c${number}`, node: `node-${node}`, devices }, endsAt, beganAt });
  }
  const pool: Snapshot = {
    nodes: [0, 1, 2, 3].map((node) => ({
      name: `node-${node}`,
      isReady: true,
      // The last node accepts no claims, whatever ends there.
      isCordoned: node === 3,
      devices: Array.from({ length: 2 + (node % 3) }, (_, index) => ({
        uuid: `GPU-${index}`,
        index,
        memoryBytes,
        isHealthy: true,
        grants: grants.get(`${node}/${index}`) ?? [],
      })),
    })),
  };
  return { pool, endings };
}

test("as few claims as possible have to end, in their order, and the unit is placed where they were", () => {
  let waits = 0;
  fc.assert(
    fc.property(held, asks, (claims, { gpus, percent, members, isSameNode }) => {
      const { pool, endings } = makePool(claims);
      const waiting = Array.from(
        { length: members },
        (_, member): WaitingClaim => ({
          request: {
            claim: `w${member}`,
            gpus,
            memoryBytes: 0n,
            memoryPercent: percent,
            computePercent: percent,
          },
          queue: "q",
          tenant: "t",
          user: "",
          priority: 0,
          isPreemptible: false,
          isBestEffort: false,
          gang: members === 1 ? "" : "gang",
          gangSize: members === 1 ? 0 : members,
          isSameNode,
          arrival: member + 1,
          waitingSince: 0,
          timeLimitSeconds: 0,
          preferredHost: "",
        }),
      );
      const [unit] = makeUnits(waiting, { gangs: new Map() });
      if (unit === undefined) {
        throw new Error("there is no unit");
      }
      const ordered = endings.toSorted(
        (a, b) =>
          (a.endsAt ?? 1000) - (b.endsAt ?? 1000) ||
          a.beganAt - b.beganAt ||
          (a.statement.claim < b.statement.claim ? -1 : 1),
      );
      const byNode = Map.groupBy(endings.toSorted(compareEndings), ({ statement }) => statement.node);
      const endingsOn = (node: string) => byNode.get(node) ?? [];
      const everyone = reserve(pool, unit, endingsOn, []);
      const counts = Array.from({ length: ordered.length + 1 }, (_, count) => count);
      const count = counts.find(
        (each) => placeUnit(withoutGrants(pool, ordered.slice(0, each)), unit) !== undefined,
      );
      expect(everyone === undefined).toBe(count === undefined);
      if (count !== undefined) {
        const nodes = new Set(everyone?.statements.map(({ node }) => node));
        const ended = ordered.slice(0, count);
        expect(everyone?.ended).toEqual(ended.filter(({ statement }) => nodes.has(statement.node)));
        expect(everyone?.startsAt).toBe(count === 0 ? Number.NEGATIVE_INFINITY : ended.at(-1)?.endsAt);
        // Caching by node does not change the result.
        expect(reserve(pool, unit, endingsOn, [])).toEqual(everyone);
        expect(everyone?.statements).toEqual(placeUnit(withoutGrants(pool, ordered.slice(0, count)), unit));
        waits += count;
      }
    }),
    { numRuns: 300 },
  );
  // In these pools some claims must end first.
  expect(waits).toBeGreaterThan(0);
});
