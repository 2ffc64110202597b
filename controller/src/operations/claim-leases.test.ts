// SPDX-License-Identifier: Apache-2.0

import { ClaimState } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";

describe("leases", () => {
  test("a claim that nobody renews ends, bound or waiting", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "bound", leaseSeconds: 5 } });
    await pool.claims.createClaim({ claim: { name: "waiting", leaseSeconds: 7 } });
    await pool.passTime(4);
    expect((await pool.claims.getClaim({ name: "bound" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.passTime(1);
    expect((await pool.claims.getClaim({ name: "bound" })).claim).toMatchObject({
      state: ClaimState.RELEASED,
      reason: "its lease of 5 s was not renewed, and it has no open session",
    });
    expect((await pool.claims.getClaim({ name: "waiting" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.passTime(2);
    expect((await pool.claims.getClaim({ name: "waiting" })).claim?.state).toBe(ClaimState.RELEASED);
  });

  test("a waiting claim that nobody renews ends", async () => {
    const pool = await TestPool.start();
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 5 } });
    await pool.passTime(5);
    expect((await pool.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.RELEASED,
      reason: "its lease of 5 s was not renewed while it waited",
    });
  });

  test("WaitClaim renews, also while it waits", async () => {
    const pool = await TestPool.start();
    const { claim } = await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 5 } });
    const knownVersion = claim?.version ?? 0n;
    await pool.passTime(4);
    const waiting = pool.claims.waitClaim({ name: "a", knownVersion, timeoutSeconds: 20 });
    await pool.claims.getClaim({ name: "a" });
    await pool.passTime(20);
    expect((await waiting).claim?.state).toBe(ClaimState.PENDING);
    await pool.passTime(4);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.PENDING);
    await pool.passTime(1);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.RELEASED);
  });

  test("a client that dies while it waits does not keep the claim", async () => {
    const pool = await TestPool.start();
    const { claim } = await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 5 } });
    const knownVersion = claim?.version ?? 0n;
    const client = new AbortController();
    const request = { name: "a", knownVersion, timeoutSeconds: 60 };
    const waiting = pool.claims.waitClaim(request, { signal: client.signal });
    await pool.claims.getClaim({ name: "a" });
    await pool.passTime(6);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.PENDING);

    const watching = pool.claims.waitClaim({ ...request, timeoutSeconds: 60 });
    await pool.claims.getClaim({ name: "a" });
    client.abort();
    await expect(waiting).rejects.toThrow(/canceled/);
    pool.clock.advance(60_000);
    await watching;
    await pool.passTime(5);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.RELEASED);
  });

  test("an open session keeps its claim without a lease; without the session it ends", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 5 } });
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    const session = await agent.openSession(ticket);
    await pool.passTime(60);
    expect((await pool.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.BOUND,
      openSessions: 1,
    });
    await agent.closeSession(session);
    expect((await pool.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.RELEASED,
      reason: "its lease of 5 s was not renewed, and it has no open session",
    });
  });

  test("a claim bound to its session ends with it, whatever is left of the lease", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 600, sessionBound: true } });
    await pool.passTime(3);
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    const session = await agent.openSession(ticket);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    await agent.closeSession(session);
    expect((await pool.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.RELEASED,
      reason: "its session has ended",
    });
  });

  test("a claim bound to its session ends with it and frees its devices, though no call listed the session", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 600, sessionBound: true } });
    await pool.passTime(1);
    const session = agent.takeTicket((await pool.claims.createTicket({ claim: "a" })).ticket);
    agent.connectClient(session);
    await agent.closeSession(session);
    expect((await pool.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.RELEASED,
      reason: "its session has ended",
    });
    // No time has passed: the ticket is known to be used, although its session was never reported.
    await agent.settle();
    expect((await pool.pool.listDevices({})).devices[0]?.virtualGpus).toBe(0);
  });

  test("what is said of an ended session twice, or of an earlier claim of the name, ends nothing", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    const spec = { name: "a", leaseSeconds: 600, sessionBound: true };
    await pool.claims.createClaim({ claim: spec });
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    const session = await agent.openSession(ticket);
    const first = agent.sessions.get(session);
    await agent.closeSession(session);
    await agent.settle();
    await pool.claims.createClaim({ claim: spec });
    if (first !== undefined) {
      agent.ended.set(session, first);
    }
    await agent.settle();
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
  });

  test("a session whose client never came does not end the claim that is bound to its session", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 5, sessionBound: true } });
    const abandoned = agent.takeTicket((await pool.claims.createTicket({ claim: "a" })).ticket);
    await agent.settle();
    await agent.closeSession(abandoned);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);

    // Nor does a ticket keep the claim when its client has connected to another session and left.
    agent.takeTicket((await pool.claims.createTicket({ claim: "a" })).ticket);
    await pool.passTime(1);
    const session = await agent.openSession((await pool.claims.createTicket({ claim: "a" })).ticket);
    await pool.passTime(5);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.openSessions).toBe(2);
    await agent.closeSession(session);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.reason).toBe("its session has ended");
    await agent.settle();
    expect(agent.sessions.size).toBe(0);
    await agent.settle();
    expect((await pool.pool.listDevices({})).devices[0]?.virtualGpus).toBe(0);
  });

  test("a session that ended while the controller was away ends its claim when it is back", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    agent.mayLoseController = true;
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 600, sessionBound: true } });
    const session = await agent.openSession((await pool.claims.createTicket({ claim: "a" })).ticket);
    const ended = agent.sessions.get(session);
    await pool.restart();
    const successor = await pool.addAgent("node-a", [4n * GiB]);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    if (ended !== undefined) {
      successor.ended.set(session, ended);
    }
    await successor.sync();
    expect((await pool.claims.getClaim({ name: "a" })).claim?.reason).toBe("its session has ended");
  });
});
