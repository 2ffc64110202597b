// SPDX-License-Identifier: Apache-2.0

import { createClient } from "@connectrpc/connect";
import { ClaimState, QueueService } from "@millpond/api";
import { expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

async function stateOf(pool: TestPool, name: string): Promise<ClaimState | undefined> {
  return (await pool.claims.getClaim({ name })).claim?.state;
}

/** Memory accounted for on all devices, in GiB. */
async function booked(pool: TestPool): Promise<bigint> {
  const { devices } = await pool.pool.listDevices({});
  return devices.reduce((sum, { allocatedMemoryBytes }) => sum + allocatedMemoryBytes, 0n) / GiB;
}

/** As a client library does at its program's first call. */
async function wake(pool: TestPool, name: string) {
  const known = (await pool.claims.waitClaim({ name })).claim;
  return (
    await pool.claims.waitClaim({ name, knownVersion: known?.version ?? 0n, timeoutSeconds: 10, wake: true })
  ).claim;
}

async function open(pool: TestPool, name: string): Promise<string> {
  const { ticket } = await pool.claims.createTicket({ claim: name });
  return await pool.agent("a").openSession(ticket);
}

test("a lazy claim holds nothing until it is woken, and gives back what it holds when its last session has ended", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  const lazy = { name: "shell", lazy: true, leaseSeconds: 3600, memoryBytes: 4n * GiB };
  const { claim } = await pool.claims.createClaim({ claim: lazy, noWait: true });
  expect(claim).toMatchObject({ state: ClaimState.DORMANT, lazy: true, waitingSince: 0n, queuePosition: 0 });
  expect(claim?.reason).toBe("none of its programs has called its devices yet");
  expect(await booked(pool)).toBe(0n);
  // It counts neither as a waiting claim nor as a bound one.
  const { queues } = await createClient(
    QueueService,
    makeTransport(pool.controller.url, pool.controller.userToken),
  ).listQueues({});
  expect(queues).toMatchObject([{ waitingClaims: 0, boundClaims: 0 }]);
  await expect(pool.claims.createTicket({ claim: "shell" })).rejects.toThrow(
    /the claim shell is dormant: none of its programs has called .*MILLPOND_E_CLAIM_NOT_BOUND/,
  );

  expect(await wake(pool, "shell")).toMatchObject({ state: ClaimState.BOUND, requeues: 0 });
  expect(await booked(pool)).toBe(4n);
  const first = await open(pool, "shell");
  const second = await open(pool, "shell");
  await pool.passTime(60);
  await pool.agent("a").closeSession(first);
  expect(await stateOf(pool, "shell")).toBe(ClaimState.BOUND);
  await pool.agent("a").closeSession(second);
  expect(await stateOf(pool, "shell")).toBe(ClaimState.DORMANT);
  await pool.agent("a").settle();
  expect(await booked(pool)).toBe(0n);

  // Its size may change between programs.
  const resized = await pool.claims.resizeClaim({ name: "shell", memoryBytes: 8n * GiB });
  expect(resized.claim).toMatchObject({ state: ClaimState.DORMANT, memoryBytes: 8n * GiB });
  await expect(pool.claims.resizeClaim({ name: "shell", gpus: 2 })).rejects.toThrow(/MILLPOND_E_IMPOSSIBLE/);
  expect((await wake(pool, "shell"))?.allocation?.devices).toMatchObject([{ memoryBytes: 8n * GiB }]);
});

test("a ticket that opened no session before its agent was killed keeps the claim awake for a moment only", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  await pool.claims.createClaim({ claim: { name: "shell", lazy: true, leaseSeconds: 3600 } });
  await wake(pool, "shell");
  await pool.claims.createTicket({ claim: "shell" });
  await pool.passTime(4);
  await pool.killAgent("a");
  pool.clock.advance(4000);
  const agent = await pool.addAgent("a", [8n * GiB]);
  // By now its client has another ticket, with which it opens a session that ends.
  await agent.closeSession(await open(pool, "shell"));
  await pool.passTime(13);
  expect(await stateOf(pool, "shell")).toBe(ClaimState.BOUND);
  await pool.passTime(3);
  expect(await stateOf(pool, "shell")).toBe(ClaimState.DORMANT);
});

test("one that is woken takes its turn behind those that wait, and says why", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  const whole = { leaseSeconds: 3600 };
  await pool.claims.createClaim({ claim: { ...whole, name: "shell", lazy: true } });
  await pool.claims.createClaim({ claim: { ...whole, name: "runs" } });
  await pool.claims.createClaim({ claim: { ...whole, name: "waits" } });
  const woken = await wake(pool, "shell");
  expect(woken?.state).toBe(ClaimState.PENDING);
  expect((await pool.claims.explainClaim({ name: "shell" })).claim).toMatchObject({ queuePosition: 2 });
  expect(woken?.reason).toMatch(/device/);
  expect((await pool.claims.explainClaim({ name: "shell" })).waitsFor).toEqual(["runs", "waits"]);

  await pool.claims.releaseClaim({ name: "runs" });
  expect(await stateOf(pool, "waits")).toBe(ClaimState.BOUND);
  await pool.claims.releaseClaim({ name: "waits" });
  expect(await stateOf(pool, "shell")).toBe(ClaimState.BOUND);
});

test("one that nobody waits for any more goes back to sleep, bound or not, and another is bound instead", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  for (const name of ["one", "two"]) {
    await pool.claims.createClaim({ claim: { name, lazy: true, leaseSeconds: 3600 } });
  }
  expect((await wake(pool, "one"))?.state).toBe(ClaimState.BOUND);
  expect((await wake(pool, "two"))?.state).toBe(ClaimState.PENDING);
  await pool.passTime(14);
  await pool.claims.waitClaim({ name: "two", wake: true });
  expect(await stateOf(pool, "one")).toBe(ClaimState.BOUND);
  await pool.passTime(2);
  expect(await stateOf(pool, "one")).toBe(ClaimState.DORMANT);
  expect(await stateOf(pool, "two")).toBe(ClaimState.BOUND);
  // A ticket that may still open a session keeps the claim until the ticket expires.
  await pool.claims.createTicket({ claim: "two" });
  await pool.passTime(60);
  expect(await stateOf(pool, "two")).toBe(ClaimState.BOUND);
  await pool.passTime(11);
  expect(await stateOf(pool, "two")).toBe(ClaimState.DORMANT);
  const { events } = await pool.pool.listEvents({ subject: "claim/two" });
  expect(events.map(({ kind }) => kind)).toEqual([
    "ClaimCreated",
    "ClaimWoken",
    "ClaimBound",
    "ClaimDormant",
  ]);
});

test("one that is preempted sleeps, and waits again when its program does", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  const lazy = { name: "shell", lazy: true, leaseSeconds: 3600, preemptible: true, graceSeconds: 5 };
  await pool.claims.createClaim({ claim: lazy });
  await wake(pool, "shell");
  await open(pool, "shell");
  await pool.claims.createClaim({ claim: { name: "urgent", priority: 5, leaseSeconds: 3600 } });
  await pool.passTime(1);
  expect((await pool.claims.getClaim({ name: "shell" })).claim?.preemptAt).not.toBe(0n);
  await pool.passTime(6);
  await pool.agent("a").settle();
  expect(await stateOf(pool, "urgent")).toBe(ClaimState.BOUND);
  expect((await pool.claims.getClaim({ name: "shell" })).claim).toMatchObject({
    state: ClaimState.DORMANT,
    requeues: 1,
    preemptAt: 0n,
  });
  expect((await wake(pool, "shell"))?.state).toBe(ClaimState.PENDING);
});

test("a dormant claim ends with its lease, and only what is held is charged", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  await pool.claims.createClaim({ claim: { name: "shell", lazy: true, leaseSeconds: 10 } });
  await pool.passTime(9);
  expect(await stateOf(pool, "shell")).toBe(ClaimState.DORMANT);
  await pool.passTime(2);
  const { claim } = await pool.claims.getClaim({ name: "shell" });
  expect(claim?.state).toBe(ClaimState.RELEASED);
  expect(claim?.reason).toBe("its lease of 10 s was not renewed while it was dormant");
});

test("a controller that is started again knows what is dormant, and lets nothing sleep that may be in use", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  const lazy = { lazy: true, leaseSeconds: 3600, memoryBytes: 2n * GiB };
  for (const name of ["sleeps", "runs", "leaves"]) {
    await pool.claims.createClaim({ claim: { name, ...lazy } });
  }
  await wake(pool, "runs");
  await wake(pool, "leaves");
  await open(pool, "runs");
  const { ticket } = await pool.claims.createTicket({ claim: "leaves" });
  const sessions = [...pool.agent("a").sessions];
  await pool.restart();
  const agent = await pool.addAgent("a", [8n * GiB]);
  for (const [id, session] of sessions) {
    agent.sessions.set(id, session);
  }
  await pool.passTime(30);
  const states = async () =>
    Promise.all(["sleeps", "runs", "leaves"].map(async (name) => await stateOf(pool, name)));
  expect(await states()).toEqual([ClaimState.DORMANT, ClaimState.BOUND, ClaimState.BOUND]);
  expect(ticket).not.toBe("");
  await pool.passTime(41);
  expect(await states()).toEqual([ClaimState.DORMANT, ClaimState.BOUND, ClaimState.DORMANT]);
});

test("a gang is never lazy, and a claim that belongs to a process is bound at once", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  await expect(
    pool.claims.createClaim({ claim: { name: "x", lazy: true, gang: "g", gangSize: 2 } }),
  ).rejects.toThrow(/lazy and gang are both given/);
  const { claim } = await pool.claims.createClaim({ claim: { name: "own", lazy: true, sessionBound: true } });
  expect(claim).toMatchObject({ state: ClaimState.BOUND, lazy: false });
});

test("programs of a lazy claim may be idle for five minutes, or for as long as it says, which is in their tickets", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  const parkAfter = async (name: string): Promise<unknown> => {
    const { ticket } = await pool.claims.createTicket({ claim: name });
    return JSON.parse(Buffer.from(ticket.split(".")[1] ?? "", "base64url").toString());
  };
  const shared = { leaseSeconds: 3600, memoryBytes: GiB };
  await pool.claims.createClaim({ claim: { ...shared, name: "usual", lazy: true } });
  await pool.claims.createClaim({ claim: { ...shared, name: "hasty", lazy: true, lazyIdleSeconds: 7 } });
  await pool.claims.createClaim({ claim: { ...shared, name: "eager" } });
  await wake(pool, "usual");
  await wake(pool, "hasty");
  expect(await parkAfter("usual")).toMatchObject({ parkAfterSeconds: 300 });
  expect(await parkAfter("hasty")).toMatchObject({ parkAfterSeconds: 7 });
  expect(await parkAfter("eager")).not.toHaveProperty("parkAfterSeconds");
  await expect(pool.claims.createClaim({ claim: { name: "x", lazyIdleSeconds: 7 } })).rejects.toThrow(
    /lazyIdleSeconds is given without lazy/,
  );
});

test("one that is woken by a program that had devices gets such again, and is free for any when it has slept", async () => {
  const pool = await TestPool.start({ a: [8n * GiB] });
  await pool.claims.createClaim({ claim: { name: "shell", lazy: true, leaseSeconds: 3600 } });
  for (const told of [{ toldModels: ["Another GPU"] }, { toldHost: "elsewhere" }]) {
    await pool.claims.waitClaim({ name: "shell", wake: true, ...told });
    const { claim } = await pool.claims.explainClaim({ name: "shell" });
    expect(claim?.state).toBe(ClaimState.PENDING);
    await pool.passTime(16);
    expect(await stateOf(pool, "shell")).toBe(ClaimState.DORMANT);
  }
  await pool.claims.waitClaim({
    name: "shell",
    wake: true,
    toldModels: ["Another GPU", "Software GPU"],
    toldHost: "boot",
  });
  expect(await stateOf(pool, "shell")).toBe(ClaimState.BOUND);
  await pool.passTime(16);
  expect(await stateOf(pool, "shell")).toBe(ClaimState.DORMANT);
  expect((await wake(pool, "shell"))?.state).toBe(ClaimState.BOUND);
  await expect(pool.claims.waitClaim({ name: "shell", wake: true, toldModels: [""] })).rejects.toThrow(
    /MILLPOND_E_INVALID/,
  );
});
