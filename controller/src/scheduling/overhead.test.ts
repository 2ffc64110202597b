// SPDX-License-Identifier: Apache-2.0
// The scheduler reserves what a driver takes for a session, beside the memory of each claim.

import { ClaimState } from "@millpond/api";
import { expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";

const overheadBytes = GiB / 2n;

async function bound(pool: TestPool, name: string): Promise<bigint | undefined> {
  const { claim } = await pool.claims.getClaim({ name });
  return claim?.state === ClaimState.BOUND ? claim.allocation?.devices[0]?.memoryBytes : undefined;
}

test("claims are granted as much as their sessions' overhead leaves, and grow as far", async () => {
  const pool = await TestPool.start({});
  await pool.addAgent("node-a", [16n * GiB], { overheadBytes });
  await pool.claims.createClaim({ claim: { name: "a", memoryBytes: 8n * GiB, computePercent: 10 } });
  await pool.claims.createClaim({ claim: { name: "b", memoryBytes: 8n * GiB, computePercent: 10 } });
  expect(await bound(pool, "a")).toBe(8n * GiB);
  expect((await pool.claims.getClaim({ name: "b" })).claim?.reason).toContain(
    "no device has 8 GiB free: largest free is 7 GiB on node-a/0",
  );
  await pool.claims.createClaim({ claim: { name: "c", memoryBytes: 6n * GiB, computePercent: 10 } });
  expect(await bound(pool, "c")).toBe(6n * GiB);
  await pool.claims.resizeClaim({ name: "c", memoryBytes: 7n * GiB });
  expect(await bound(pool, "c")).toBe(7n * GiB);
  await expect(pool.claims.resizeClaim({ name: "c", memoryBytes: 7n * GiB + GiB / 4n })).rejects.toThrow(
    /MILLPOND_E_/,
  );
  const { node } = await pool.pool.getNode({ name: "node-a" });
  expect(node?.devices[0]).toMatchObject({ overheadBytes, allocatedMemoryBytes: 15n * GiB });
  // An agent of the previous release reports none.
  await pool.killAgent("node-a");
  await pool.passTime(10);
  await pool.addAgent("node-a", [16n * GiB]);
  expect((await pool.pool.getNode({ name: "node-a" })).node?.devices[0]?.overheadBytes).toBe(0n);
});

test("two halves of a device fit, each with its overhead in it", async () => {
  const pool = await TestPool.start({});
  await pool.addAgent("node-a", [16n * GiB], { overheadBytes });
  for (const name of ["a", "b"]) await pool.claims.createClaim({ claim: { name, memoryPercent: 50 } });
  expect([await bound(pool, "a"), await bound(pool, "b")]).toEqual([
    8n * GiB - overheadBytes,
    8n * GiB - overheadBytes,
  ]);
});
