// SPDX-License-Identifier: Apache-2.0

import { statSync } from "node:fs";
import { join } from "node:path";
import { ClaimState, NodeState } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { GiB, TestPool } from "./testing/test-pool.ts";

describe("a restart", () => {
  test("keeps claims, allocations, epochs, keys and tokens", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const ask = {
      name: "a",
      gpus: 1,
      memoryBytes: 3n * GiB,
      computePercent: 40,
      owner: "ann",
      leaseSeconds: 20,
    };
    const before = (await pool.claims.createClaim({ claim: ask })).claim;
    await pool.claims.createClaim({ claim: { name: "b", memoryPercent: 50 } });
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    const { ticketPublicKey } = pool.agent("node-a").desired ?? {};
    const { identity, userToken, agentToken } = pool.controller;
    const waiting = (await pool.claims.getClaim({ name: "b" })).claim;

    await pool.restart();
    expect(pool.controller).toMatchObject({ identity, userToken, agentToken });
    const after = await pool.claims.getClaim({ name: "a" });
    expect({ ...after.claim, leaseExpiresAt: 0n }).toEqual({ ...before, leaseExpiresAt: 0n });
    expect((await pool.pool.getNode({ name: "node-a" })).node).toMatchObject({
      state: NodeState.NOT_READY,
      reason: "its agent has not reported since the controller started",
      devices: [{ uuid: "GPU-0", allocatedMemoryBytes: 3n * GiB }],
    });
    await expect(pool.claims.createTicket({ claim: "a" })).rejects.toThrow(
      /since the controller started.*NODE_NOT_READY/,
    );
    const stillWaiting = await pool.claims.getClaim({ name: "b" });
    expect(stillWaiting.claim).toMatchObject({ state: ClaimState.PENDING, queuePosition: 1 });
    expect(stillWaiting.claim?.version).toBeGreaterThanOrEqual(waiting?.version ?? 0n);

    const agent = await pool.addAgent("node-a", [4n * GiB]);
    expect(agent.desired?.ticketPublicKey).toBe(ticketPublicKey);
    await agent.openSession(ticket);
    await pool.claims.releaseClaim({ name: "a" });
    pool.clock.advance(1000);
    await agent.settle();
    await agent.settle();
    const bound = (await pool.claims.getClaim({ name: "b" })).claim;
    expect(bound).toMatchObject({ state: ClaimState.BOUND, allocation: { epoch: 2n } });
  });

  test("gives every lease a fresh grace, and then ends what nobody wants", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 5 } });
    await pool.passTime(4);
    await pool.restart();
    await pool.addAgent("node-a", [4n * GiB]);
    await pool.passTime(14);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.passTime(1);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.RELEASED);
  });

  test("does not end a bound claim while its node is silent", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 5 } });
    await pool.restart();
    await pool.passTime(100);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.addAgent("node-a", [4n * GiB]);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.RELEASED);
  });

  test("answers the calls under way with a clear error", async () => {
    const pool = await TestPool.start({ "node-a": [GiB] });
    const { claim } = await pool.claims.createClaim({ claim: { name: "a" } });
    const waiting = pool.claims.waitClaim({
      name: "a",
      knownVersion: claim?.version ?? 0n,
      timeoutSeconds: 60,
    });
    const outcome = waiting.then(() => "answered", String);
    await pool.claims.getClaim({ name: "a" });
    await pool.stop();
    expect(await outcome).toMatch(/being stopped.*\[MILLPOND_E_SHUTTING_DOWN\]$/);
  });
});

test("GetVersion says who answers", async () => {
  const pool = await TestPool.start();
  expect(await pool.pool.getVersion({})).toMatchObject({
    version: "0.1.0",
    controller: pool.controller.identity,
    api: "v1",
    startedAt: 1_790_000_000n,
  });
});

describe("an idle pool", () => {
  test("sets no timer without nodes and claims", async () => {
    const pool = await TestPool.start();
    await pool.claims.listClaims({});
    expect(pool.clock.timers).toBe(0);
  });

  test("sets one timer for all claims and nodes, and one for each call that waits", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB], "node-b": [4n * GiB] });
    for (const name of ["a", "b", "c", "d"]) {
      await pool.claims.createClaim({ claim: { name } });
    }
    // Both agents wait, possibly not at the same time.
    await expect.poll(() => pool.clock.timers, { interval: 1 }).toBe(3);
  });

  test("agents that have nothing to say cause no write", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { leaseSeconds: 600 } });
    const before = statSync(join(pool.directory, "controller.sqlite-wal"));
    await pool.passTime(30);
    const after = statSync(join(pool.directory, "controller.sqlite-wal"));
    expect([after.size, after.mtimeMs]).toEqual([before.size, before.mtimeMs]);
  });
});
