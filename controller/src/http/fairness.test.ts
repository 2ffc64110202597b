// SPDX-License-Identifier: Apache-2.0

// While one token requests everything that it may read as fast as it can, others are answered.

import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, PoolService, QueueService } from "@millpond/api";
import { expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

async function start() {
  const pool = await TestPool.start({ "node-a": [GiB, GiB] });
  const admin = makeTransport(pool.controller.url, pool.controller.userToken);
  const access = createClient(AccessService, admin);
  await createClient(QueueService, admin).putTenant({ tenant: { name: "team-b" } });
  const secretOf = async (name: string, tenant: string) =>
    (await access.createToken({ name, role: "user", tenant })).secret;
  const mallory = makeTransport(pool.controller.url, await secretOf("mallory", "team-b"));
  const ann = makeTransport(pool.controller.url, await secretOf("ann", ""));
  for (let round = 0; round < 10; round++) {
    await Promise.all(
      Array.from({ length: 100 }, async (_, index) => {
        await pool.claims.createClaim({ claim: { name: `a-${index}`, memoryBytes: 1n << 20n } });
        await pool.claims.releaseClaim({ name: `a-${index}` });
      }),
    );
  }
  return {
    mallory: createClient(PoolService, mallory),
    ann: { claims: createClient(ClaimService, ann), pool: createClient(PoolService, ann) },
  };
}

test("beside 48 connections of one token that read without end, a ticket and a read of another wait for few of them", async () => {
  const { mallory, ann } = await start();
  await ann.claims.createClaim({ claim: { name: "own", memoryBytes: 1n << 20n } });
  let answered = 0;
  let isOver = false;
  const flood = Array.from({ length: 48 }, async () => {
    while (!isOver) {
      await mallory.listEvents({ limit: 1000 });
      answered += 1;
    }
  });
  await expect.poll(() => answered).toBeGreaterThan(48);
  /** How many reads of the flood were answered while a call waited: the median of 15 calls. */
  const passedBy = async (call: () => Promise<unknown>): Promise<number> => {
    const counts: number[] = [];
    for (let round = 0; round < 15; round++) {
      const before = answered;
      await call();
      counts.push(answered - before);
    }
    return counts.toSorted((a, b) => a - b)[7] ?? 0;
  };
  const waited = {
    ticket: await passedBy(() => ann.claims.createTicket({ claim: "own" })),
    read: await passedBy(() => ann.pool.listNodes({})),
  };
  isOver = true;
  await Promise.all(flood);
  expect(Math.max(waited.ticket, waited.read), JSON.stringify(waited)).toBeLessThan(12);
});
