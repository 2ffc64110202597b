// SPDX-License-Identifier: Apache-2.0

import { cpSync } from "node:fs";
import { createClient } from "@connectrpc/connect";
import { QueueService } from "@millpond/api";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { SqliteStore } from "./store/sqlite-store.ts";
import type { UsageRecord } from "./store/store.ts";
import { GiB, makeTestDirectory, TestPool } from "./testing/test-pool.ts";
import { makeTransport } from "./testing/transport.ts";
import { sumUsage, type UsageSum } from "./usage.ts";

const records = fc
  .record({
    kind: fc.constantFrom("held", "waited"),
    claim: fc.constantFrom("a", "b", "c"),
    tenant: fc.constantFrom("team-a", "team-b"),
    queue: fc.constantFrom("default", "research"),
    gpuMilli: fc.integer({ min: 0, max: 64_000 }),
    beganAt: fc.integer({ min: 0, max: 1000 }),
    seconds: fc.integer({ min: 0, max: 1000 }),
    active: fc.integer({ min: 0, max: 1000 }),
  })
  .map(({ seconds, active, ...record }): UsageRecord => {
    const activeSeconds = record.kind === "held" ? Math.min(active, seconds) : 0;
    return { ...record, endedAt: record.beganAt + seconds, activeSeconds };
  });

/** What adds up, by tenant and queue. */
function amounts(sums: readonly UsageSum[]): ReadonlyMap<string, readonly number[]> {
  return new Map(
    sums.map((sum) => [
      `${sum.tenant} ${sum.queue}`,
      [
        sum.askedGpuSeconds,
        sum.grantedGpuSeconds,
        sum.usedGpuSeconds,
        sum.wastedGpuSeconds,
        sum.waitedSeconds,
      ],
    ]),
  );
}

test("what was used in the parts of a period is what was used in all of it, and each amount is within the greater one", () => {
  const cuts = fc.uniqueArray(fc.integer({ min: 0, max: 2200 }), { minLength: 2, maxLength: 6 });
  fc.assert(
    fc.property(fc.array(records, { maxLength: 12 }), cuts, (all, unordered) => {
      const ordered = unordered.toSorted((a, b) => a - b);
      const [from = 0, to = 0] = [ordered[0], ordered.at(-1)];
      const whole = sumUsage(all, { from, to });
      const parts = ordered
        .slice(1)
        .map((end, position) => amounts(sumUsage(all, { from: ordered[position] ?? 0, to: end })));
      for (const [key, sums] of amounts(whole)) {
        for (const [position, sum] of sums.entries()) {
          const added = parts.reduce((total, part) => total + (part.get(key)?.[position] ?? 0), 0);
          expect(added).toBeCloseTo(sum, 6);
        }
      }
      for (const part of parts) {
        expect([...amounts(whole).keys()]).toEqual(expect.arrayContaining([...part.keys()]));
      }
      for (const { askedGpuSeconds, grantedGpuSeconds, usedGpuSeconds, wastedGpuSeconds } of whole) {
        expect(askedGpuSeconds).toBeGreaterThanOrEqual(grantedGpuSeconds);
        expect(grantedGpuSeconds).toBeGreaterThanOrEqual(usedGpuSeconds - 1e-6);
        expect(usedGpuSeconds + wastedGpuSeconds).toBeCloseTo(grantedGpuSeconds, 6);
      }
    }),
  );
});

/** The program of a session makes calls for so long. */
async function work(pool: TestPool, session: string, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second += 4) {
    const running = pool.agent("node-a").sessions.get(session);
    if (running === undefined) throw new Error("its session has ended");
    running.commands += 1n;
    pool.clock.advance(4000);
    await pool.agent("node-a").sync();
    await pool.settle();
  }
}

async function begin(pool: TestPool): Promise<string> {
  await pool.claims.createClaim({ claim: { name: "runs", leaseSeconds: 36_000 } });
  const { ticket } = await pool.claims.createTicket({ claim: "runs" });
  return await pool.agent("node-a").openSession(ticket);
}

async function usedSeconds(pool: TestPool): Promise<number> {
  const queues = createClient(QueueService, makeTransport(pool.controller.url, pool.controller.userToken));
  return (await queues.getUsage({})).usage[0]?.usedGpuSeconds ?? 0;
}

test("what a claim that goes on has used is known after its controller was stopped and started", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  await work(pool, await begin(pool), 40);
  expect(await usedSeconds(pool)).toBe(40);
  await pool.restart();
  expect(await usedSeconds(pool)).toBe(40);
  // Of that nothing is lost and nothing comes twice when it ends.
  await pool.addAgent("node-a", [4n * GiB]);
  await pool.claims.releaseClaim({ name: "runs" });
  expect(await usedSeconds(pool)).toBe(40);
});

test("every five minutes it is written down, for a controller that is killed", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  const written = async (): Promise<number[]> => {
    // What one that is killed leaves behind.
    const directory = makeTestDirectory();
    cpSync(pool.directory, directory, { recursive: true });
    const store = SqliteStore.open({ directory });
    const { allocations } = await store.load();
    await store.close();
    return allocations.map(({ activeSeconds }) => activeSeconds);
  };
  const session = await begin(pool);
  await work(pool, session, 296);
  expect(await written()).toEqual([0]);
  await work(pool, session, 8);
  expect(await written()).toEqual([296]);
});
