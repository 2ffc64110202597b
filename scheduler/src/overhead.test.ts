// SPDX-License-Identifier: Apache-2.0
// What drivers take for a session beside the memory of its claim.

import { mayKnowAll, renderReason } from "@millpond/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { explainWaiting } from "./explain.ts";
import { place } from "./place.ts";
import type { ClaimRequest } from "./request.ts";
import { type DeviceState, freeOf, growthOf, type Snapshot } from "./snapshot.ts";
import { applyStatement } from "./statement.ts";

const MiB = 1n << 20n;
const GiB = 1n << 30n;
const overheadBytes = 512n * MiB;

function poolOf(device: Partial<DeviceState> = {}): Snapshot {
  const whole = {
    uuid: "GPU-0",
    index: 0,
    memoryBytes: 16n * GiB,
    overheadBytes,
    isHealthy: true,
    grants: [],
  };
  return {
    nodes: [{ name: "node-a", isReady: true, isCordoned: false, devices: [{ ...whole, ...device }] }],
  };
}

function request(claim: string, ask: Partial<ClaimRequest>): ClaimRequest {
  return { claim, gpus: 1, memoryBytes: 0n, memoryPercent: 0, computePercent: 1, ...ask };
}

function deviceOf({ nodes }: Snapshot): DeviceState {
  const device = nodes[0]?.devices[0];
  if (device === undefined) throw new Error("the pool has no device");
  return device;
}

/** Places claims one after the other for as long as they fit. */
function fill(pool: Snapshot, asks: readonly Partial<ClaimRequest>[]): Snapshot {
  return asks.reduce<Snapshot>((current, ask, number) => {
    const statement = place(current, request(`claim-${number}`, ask));
    return statement === undefined ? current : applyStatement(current, statement);
  }, pool);
}

test("claims in bytes have the overhead of each beside them", () => {
  const fours = Array.from({ length: 4 }, () => ({ memoryBytes: 4n * GiB }));
  expect(deviceOf(fill(poolOf(), fours)).grants).toHaveLength(3);
  expect(deviceOf(fill(poolOf({ overheadBytes: 0n }), fours)).grants).toHaveLength(4);
  const less = Array.from({ length: 4 }, () => ({ memoryBytes: 4n * GiB - overheadBytes }));
  expect(deviceOf(fill(poolOf(), less)).grants).toHaveLength(4);
});

test("parts in percent include it, so that four quarters fit", () => {
  const quarters = Array.from({ length: 4 }, () => ({ memoryPercent: 25, computePercent: 0 }));
  const { grants } = deviceOf(fill(poolOf(), quarters));
  expect(grants.map(({ memoryBytes, computePercent }) => [memoryBytes, computePercent])).toEqual(
    Array.from({ length: 4 }, () => [4n * GiB - overheadBytes, 25]),
  );
  expect(freeOf(deviceOf(fill(poolOf(), quarters))).memoryBytes).toBe(0n);
});

test("a claim can have a whole device, and nothing else fits beside it", () => {
  for (const ask of [{}, { memoryPercent: 100 }, { memoryBytes: 16n * GiB }]) {
    const filled = fill(poolOf(), [ask, { memoryBytes: MiB }]);
    expect(deviceOf(filled).grants.map(({ memoryBytes }) => memoryBytes)).toEqual([16n * GiB]);
  }
});

test("the memory that a claim waits for is what the overhead leaves", () => {
  const pool = fill(poolOf(), [{ memoryBytes: 8n * GiB }]);
  const waiting = request("late", { memoryBytes: 8n * GiB });
  expect(place(pool, waiting)).toBeUndefined();
  expect(renderReason(explainWaiting(pool, waiting), mayKnowAll)).toContain(
    "no device has 8 GiB free: largest free is 7 GiB on node-a/0",
  );
  expect(place(pool, request("late", { memoryBytes: 7n * GiB }))).toBeDefined();
  const half = request("half", { memoryPercent: 50 });
  expect(renderReason(explainWaiting(pool, half), mayKnowAll)).toContain("most is 46 % on node-a/0");
});

test("a claim grows into what others leave, and alone over the whole device", () => {
  expect(growthOf(deviceOf(fill(poolOf(), [{ memoryBytes: 4n * GiB }]))).memoryBytes).toBe(12n * GiB);
  const two = fill(poolOf(), [{ memoryBytes: 4n * GiB }, { memoryBytes: 4n * GiB }]);
  expect(growthOf(deviceOf(two)).memoryBytes).toBe(7n * GiB);
});

test("what claims and their sessions have never exceeds a device that several share", () => {
  const sizes = fc.array(
    fc.oneof(
      fc.bigInt({ min: 1n, max: 17n * 1024n }).map((mib) => ({ memoryBytes: mib * MiB })),
      fc.integer({ min: 1, max: 100 }).map((memoryPercent) => ({ memoryPercent })),
    ),
    { maxLength: 30 },
  );
  fc.assert(
    fc.property(sizes, fc.bigInt({ min: 0n, max: 4096n }), (asks, mib) => {
      const device = deviceOf(fill(poolOf({ overheadBytes: mib * MiB }), asks));
      const bytes = device.grants.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0n);
      const overhead = device.grants.length > 1 ? BigInt(device.grants.length) * mib * MiB : 0n;
      expect(bytes + overhead).toBeLessThanOrEqual(device.memoryBytes);
    }),
  );
});
