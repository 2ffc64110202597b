// SPDX-License-Identifier: Apache-2.0

import { cpSync } from "node:fs";
import { createClient } from "@connectrpc/connect";
import { ClaimService, PoolService, QueueService } from "@millpond/api";
import * as fc from "fast-check";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../timers/clock.ts";
import { SqliteStore } from "../store/sqlite-store.ts";
import type { UsageRecord } from "../domain/records.ts";
import { backends, postgresServer } from "../testing/backends.ts";
import { ControllerProcess } from "../testing/controller-process.ts";
import { FakeAgent, fakeDevice } from "../testing/fake-agent.ts";
import { GiB, makeTestDirectory, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";
import { type UsageKey, type UsageSum, UsageSums } from "./usage.ts";

const records = fc
  .record({
    kind: fc.constantFrom("held", "waited"),
    claim: fc.constantFrom("a", "b", "c"),
    tenant: fc.constantFrom("team-a", "team-b"),
    queue: fc.constantFrom("default", "research"),
    user: fc.constantFrom("", "ann", "bob"),
    model: fc.constantFrom("", "H100", "H200"),
    gpuMilli: fc.integer({ min: 0, max: 64_000 }),
    beganAt: fc.integer({ min: 0, max: 1000 }),
    seconds: fc.integer({ min: 0, max: 1000 }),
    active: fc.integer({ min: 0, max: 1000 }),
  })
  .map(({ seconds, active, ...record }): UsageRecord => {
    const activeSeconds = record.kind === "held" ? Math.min(active, seconds) : 0;
    return { ...record, endedAt: record.beganAt + seconds, activeSeconds };
  });

function sumUsage(
  all: readonly UsageRecord[],
  period: { readonly from: number; readonly to: number },
  by: UsageKey,
): UsageSum[] {
  const sums = new UsageSums(period, by);
  for (const record of all) sums.add(record);
  return sums.toList();
}

/** The additive amounts, by the members of their group. */
function amounts(sums: readonly UsageSum[]): ReadonlyMap<string, readonly number[]> {
  return new Map(
    sums.map((sum) => [
      `${sum.tenant} ${sum.queue} ${sum.user} ${sum.claim} ${sum.model}`,
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
  const keys = fc.constantFrom("queue", "user", "claim", "model");
  fc.assert(
    fc.property(fc.array(records, { maxLength: 12 }), cuts, keys, (all, unordered, by) => {
      const ordered = unordered.toSorted((a, b) => a - b);
      const [from = 0, to = 0] = [ordered[0], ordered.at(-1)];
      const whole = sumUsage(all, { from, to }, by);
      const parts = ordered
        .slice(1)
        .map((end, position) => amounts(sumUsage(all, { from: ordered[position] ?? 0, to: end }, by)));
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
      // The total is the same however it is grouped.
      const granted = (sums: readonly UsageSum[]) =>
        sums.reduce((sum, each) => sum + each.grantedGpuSeconds, 0);
      expect(granted(whole)).toBeCloseTo(granted(sumUsage(all, { from, to }, "queue")), 6);
    }),
  );
});

/** The program of a session makes calls for that many seconds. */
async function work(pool: TestPool, session: string, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second += 4) {
    pool.agent("node-a").work(session, 4000);
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
  // Its usage is neither lost nor counted twice when the claim ends.
  await pool.addAgent("node-a", [4n * GiB]);
  await pool.claims.releaseClaim({ name: "runs" });
  expect(await usedSeconds(pool)).toBe(40);
});

test("what is used after its size was changed is of the new size, and none of it is lost", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  const session = await begin(pool);
  await work(pool, session, 20);
  const resized = pool.claims.resizeClaim({ name: "runs", memoryBytes: 2n * GiB });
  await pool.agent("node-a").settle();
  await resized;
  await work(pool, session, 40);
  await pool.restart();
  // 20 seconds of a whole GPU, 40 of half a GPU.
  expect(await usedSeconds(pool)).toBe(40);
});

for (const backend of backends) {
  const why = backend.missing === undefined ? "" : ` (${backend.missing})`;
  test.skipIf(backend.missing !== undefined)(
    `a controller that is killed forgets nothing of what was used, ${backend.name}${why}`,
    async () => {
      const directory = makeTestDirectory();
      const store = backend.name === "PostgreSQL" ? await (await postgresServer()).makeDatabase() : "";
      const start = async (clockAheadSeconds: number) => {
        const controller = await ControllerProcess.start(directory, { store, clockAheadSeconds });
        onTestFinished(async () => void (await controller.end("SIGKILL")));
        const { getVersion } = createClient(PoolService, makeTransport(controller.url, controller.userToken));
        await expect.poll(async () => (await getVersion({})).leads).toBe(true);
        return controller;
      };
      const join = async (controller: ControllerProcess, before?: FakeAgent) => {
        const { url, agentToken: token } = controller;
        const options = { url, token, clock: systemClock, node: "node-a", isTimeless: true, before };
        const agent = new FakeAgent({ ...options, devices: [fakeDevice(0, 4n * GiB)] });
        agent.mayLoseController = true;
        onTestFinished(() => agent[Symbol.asyncDispose]());
        return await agent.start();
      };
      const used = async ({ url, userToken }: ControllerProcess) =>
        (await createClient(QueueService, makeTransport(url, userToken)).getUsage({})).usage[0]
          ?.usedGpuSeconds ?? 0;
      const first = await start(0);
      const claims = createClient(ClaimService, makeTransport(first.url, first.userToken));
      await claims.createClaim({ claim: { name: "runs", leaseSeconds: 36_000 } });
      const agent = await join(first);
      await claims.waitClaim({ name: "runs" });
      const session = await agent.openSession((await claims.createTicket({ claim: "runs" })).ticket);
      agent.work(session, 90_500);
      await agent.sync();
      await first.end("SIGKILL");
      // With neither, the session continues.
      agent.work(session, 30_000);
      await agent[Symbol.asyncDispose]();
      const second = await start(600);
      const next = await join(second, agent);
      await next.sync();
      expect(await used(second)).toBeCloseTo(120, 6);
      await second.end("SIGTERM");
      const third = await start(1200);
      expect(await used(third)).toBeCloseTo(120, 6);
      next.work(session, 1500);
      await (await join(third, next)).sync();
      expect(await used(third)).toBeCloseTo(122, 6);
    },
    60_000,
  );
}

test("every five minutes it is written down, for when the agent is lost with its host", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  const written = async (): Promise<number[]> => {
    // Leftovers of a killed controller.
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
