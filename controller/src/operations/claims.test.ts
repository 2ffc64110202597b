// SPDX-License-Identifier: Apache-2.0

import { createHash } from "node:crypto";
import { ClaimState, DeviceHealth, SessionState } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { as } from "../testing/tenants.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";

describe("the life of a claim", () => {
  test("one for certain devices of a node waits for those, whatever else is free", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB], "node-b": [4n * GiB, 4n * GiB] });
    const where = { onlyNode: "node-b", onlyDevices: ["GPU-1"] };
    const first = await pool.claims.createClaim({
      claim: { name: "first", memoryBytes: 3n * GiB, ...where },
    });
    expect(first.claim).toMatchObject({
      state: ClaimState.BOUND,
      allocation: { node: "node-b", devices: [{ uuid: "GPU-1" }] },
      ...where,
    });
    const second = await pool.claims.createClaim({
      claim: { name: "second", memoryBytes: 2n * GiB, ...where },
    });
    expect(second.claim).toMatchObject({ state: ClaimState.PENDING, reason: expect.stringContaining("GiB") });
    await pool.claims.releaseClaim({ name: "first" });
    expect((await pool.claims.getClaim({ name: "second" })).claim?.allocation?.devices).toMatchObject([
      { uuid: "GPU-1" },
    ]);
    await expect(pool.claims.createClaim({ claim: { onlyDevices: [""] } })).rejects.toThrow(/onlyDevices/);
    await expect(pool.claims.createClaim({ claim: { onlyNode: "node-c" } })).rejects.toThrow(
      /MILLPOND_E_IMPOSSIBLE/,
    );
  });

  test("bound, used by a session, released, free again", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    const agent = pool.agent("node-a");

    const { claim } = await pool.claims.createClaim({
      claim: { gpus: 2, memoryBytes: GiB, computePercent: 30, owner: "ann@host:1 train" },
    });
    expect(claim).toMatchObject({
      name: expect.stringMatching(/^claim-[0-9a-f]{16}$/),
      state: ClaimState.BOUND,
      reason: "",
      gpus: 2,
      leaseSeconds: 15,
      queuePosition: 0,
      allocation: {
        node: "node-a",
        devices: [
          { uuid: "GPU-0", memoryBytes: GiB, computePercent: 30 },
          { uuid: "GPU-1", memoryBytes: GiB, computePercent: 30 },
        ],
      },
    });
    const name = claim?.name ?? "";
    await agent.until(({ allocations }) => allocations.some((each) => each.claim === name));

    const ticket = await pool.claims.createTicket({
      claim: name,
      clientHost: "laptop",
      clientPid: 42,
      program: "python train.py",
    });
    expect(ticket.agentUrl).toBe("http://127.0.0.1:7171/node-a");
    expect(await agent.openSession(ticket.ticket)).toBe(ticket.session);

    const { sessions } = await pool.pool.listSessions({});
    expect(sessions).toMatchObject([
      {
        id: ticket.session,
        claim: name,
        node: "node-a",
        state: SessionState.CONNECTED,
        clientHost: "laptop",
        clientPid: 42,
        program: "python train.py",
        owner: "ann@host:1 train",
        transport: "shm",
        launches: 2n,
        devices: [
          { granted: { uuid: "GPU-0", memoryBytes: GiB }, memoryUsedBytes: 1_048_576n, index: 0 },
          { granted: { uuid: "GPU-1", memoryBytes: GiB }, memoryUsedBytes: 1_048_576n, index: 1 },
        ],
      },
    ]);
    const { devices } = await pool.pool.listDevices({ node: "node-a" });
    expect(devices[0]).toMatchObject({
      allocatedMemoryBytes: GiB,
      allocatedComputePercent: 30,
      virtualGpus: 1,
      usedMemoryBytes: 1_048_576n,
      openSessions: 1,
      health: DeviceHealth.HEALTHY,
    });

    await pool.claims.releaseClaim({ name });
    await pool.claims.releaseClaim({ name });
    const ended = await pool.claims.getClaim({ name });
    expect(ended.claim).toMatchObject({
      state: ClaimState.RELEASED,
      reason: "released by its owner",
      leaseExpiresAt: 0n,
    });
    await agent.until(({ allocations }) => allocations.length === 0);
    expect(agent.sessions.size).toBe(0);
    await agent.settle();
    const after = await pool.pool.listDevices({});
    expect(after.devices.map(({ virtualGpus }) => virtualGpus)).toEqual([0, 0]);
    expect((await pool.claims.listClaims({})).claims).toEqual([]);
    expect((await pool.claims.listClaims({ includeEnded: true })).claims).toHaveLength(1);

    const { events } = await pool.pool.listEvents({});
    expect(events.map(({ kind }) => kind)).toEqual([
      "NodeJoined",
      "ClaimCreated",
      "ClaimBound",
      "ClaimReleased",
    ]);
    expect(events.map(({ id }) => id)).toEqual([1n, 2n, 3n, 4n]);
    expect((await pool.pool.listEvents({ after: 2n, limit: 1 })).events).toMatchObject([{ id: 3n }]);
    expect((await pool.pool.listEvents({ subject: "node/node-a" })).events).toMatchObject([
      { kind: "NodeJoined" },
    ]);
  });

  test("a claim waits with a reason, and is bound when another is released", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const first = await pool.claims.createClaim({ claim: { name: "first", memoryBytes: 3n * GiB } });
    expect(first.claim?.state).toBe(ClaimState.BOUND);

    const second = await pool.claims.createClaim({ claim: { name: "second", memoryBytes: 2n * GiB } });
    expect(second.claim).toMatchObject({
      state: ClaimState.PENDING,
      reason: "no device has 2 GiB free: largest free is 1 GiB on node-a/0; 1 of 1 device is taken",
      queuePosition: 1,
    });
    const waiting = pool.claims.waitClaim({
      name: "second",
      knownVersion: second.claim?.version ?? 0n,
      timeoutSeconds: 60,
    });
    await pool.claims.releaseClaim({ name: "first" });
    expect((await waiting).claim).toMatchObject({ state: ClaimState.BOUND, reason: "", queuePosition: 0 });
  });

  test("the reason of a claim that waits follows the pool", async () => {
    const pool = await TestPool.start();
    const { claim } = await pool.claims.createClaim({ claim: { name: "a", memoryBytes: 2n * GiB } });
    expect(claim?.reason).toBe("no node has joined the pool yet");
    await pool.addAgent("node-a", [GiB]);
    const waited = await pool.claims.waitClaim({
      name: "a",
      knownVersion: claim?.version ?? 0n,
      timeoutSeconds: 60,
    });
    expect(waited.claim?.reason).toBe("no device has 2 GiB: the largest, node-a/0, has 1 GiB");
    await pool.addAgent("node-b", [2n * GiB]);
    const bound = await pool.claims.waitClaim({
      name: "a",
      knownVersion: waited.claim?.version ?? 0n,
      timeoutSeconds: 60,
    });
    expect(bound.claim).toMatchObject({ state: ClaimState.BOUND, allocation: { node: "node-b" } });
  });

  test("WaitClaim answers when the time is over, and at once when there is nothing to wait for", async () => {
    const pool = await TestPool.start();
    const { claim } = await pool.claims.createClaim({ claim: { name: "a" } });
    const knownVersion = claim?.version ?? 0n;
    let isOver = false;
    const waiting = pool.claims.waitClaim({ name: "a", knownVersion, timeoutSeconds: 10 }).finally(() => {
      isOver = true;
    });
    while (!isOver) {
      expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.PENDING);
      pool.clock.advance(1000);
    }
    expect((await waiting).claim?.version).toBe(knownVersion);
    expect(pool.clock.monotonicMs()).toBeGreaterThanOrEqual(10_000);
    expect(
      (await pool.claims.waitClaim({ name: "a", knownVersion: 0n, timeoutSeconds: 60 })).claim?.name,
    ).toBe("a");
    await pool.claims.releaseClaim({ name: "a" });
    const ended = await pool.claims.getClaim({ name: "a" });
    const again = pool.claims.waitClaim({
      name: "a",
      knownVersion: ended.claim?.version ?? 0n,
      timeoutSeconds: 60,
    });
    expect((await again).claim?.state).toBe(ClaimState.RELEASED);
  });

  test("claims are bound in order of arrival, and one that does not fit holds nobody up", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "all", memoryBytes: 4n * GiB } });
    for (const [name, memoryBytes] of [
      ["big", 4n],
      ["one", 2n],
      ["two", 2n],
      ["three", 1n],
    ] as const) {
      await pool.claims.createClaim({ claim: { name, memoryBytes: memoryBytes * GiB } });
    }
    const positions = (await pool.claims.listClaims({})).claims.map((each) => [
      each.name,
      each.queuePosition,
    ]);
    expect(positions).toEqual([
      ["all", 0],
      ["big", 1],
      ["one", 2],
      ["two", 3],
      ["three", 4],
    ]);

    await pool.claims.createClaim({ claim: { name: "four", memoryBytes: GiB } });
    await pool.claims.releaseClaim({ name: "big" });
    await pool.claims.releaseClaim({ name: "all" });
    const states = (await pool.claims.listClaims({})).claims.map((each) => [each.name, each.state]);
    expect(states).toEqual([
      ["one", ClaimState.BOUND],
      ["two", ClaimState.BOUND],
      ["three", ClaimState.PENDING],
      ["four", ClaimState.PENDING],
    ]);
  });

  test("what the pool could never hold is refused with the numbers", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB], "node-b": [4n * GiB] });
    await expect(pool.claims.createClaim({ claim: { gpus: 3 } })).rejects.toThrow(
      /no node has 3 devices: the largest, node-a, has 2 \(3 in the whole pool, .*\[MILLPOND_E_IMPOSSIBLE\]$/,
    );
    await expect(pool.claims.createClaim({ claim: { memoryBytes: 5n * GiB } })).rejects.toThrow(
      /no device has 5 GiB: the largest, node-a\/0, has 4 GiB\. .*\[MILLPOND_E_IMPOSSIBLE\]$/,
    );
    expect((await pool.claims.listClaims({ includeEnded: true })).claims).toEqual([]);
  });

  test("who does not want to wait is refused, and nothing is kept", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: {}, noWait: true });
    await expect(pool.claims.createClaim({ claim: { name: "b" }, noWait: true })).rejects.toThrow(
      /no device has all of its memory free; 1 of 1 device is taken.*\[MILLPOND_E_NO_CAPACITY\]$/,
    );
    await expect(pool.claims.getClaim({ name: "b" })).rejects.toThrow(/MILLPOND_E_NOT_FOUND/);
  });

  test("a name is free again when its claim has ended for good", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a" } });
    await expect(pool.claims.createClaim({ claim: { name: "a" } })).rejects.toThrow(
      /MILLPOND_E_ALREADY_EXISTS/,
    );
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    await agent.openSession(ticket);
    agent.isObedient = false;
    await pool.claims.releaseClaim({ name: "a" });
    await expect(pool.claims.createClaim({ claim: { name: "a" } })).rejects.toThrow(
      /MILLPOND_E_ALREADY_EXISTS/,
    );
    agent.sessions.clear();
    await agent.settle();
    const again = await pool.claims.createClaim({ claim: { name: "a" } });
    expect(again.claim?.state).toBe(ClaimState.BOUND);
  });

  test("a client that cannot reach the agent keeps one place of its claim, however often it tries", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB } });
    await pool.claims.createClaim({ claim: { name: "b", memoryBytes: GiB } });
    const first = await pool.claims.createTicket({ claim: "a" });
    let last = first;
    for (let tries = 0; tries < 100; tries += 1) {
      last = await pool.claims.createTicket({ claim: "a", unopenedSession: first.session });
      expect(last.session).toBe(first.session);
    }
    // Not by a session of another claim.
    const other = await pool.claims.createTicket({ claim: "b", unopenedSession: first.session });
    expect(other.session).not.toBe(first.session);
    // Nor after the session was opened, with any of its tickets.
    expect(await agent.openSession(last.ticket)).toBe(first.session);
    await agent.settle();
    const next = await pool.claims.createTicket({ claim: "a", unopenedSession: first.session });
    expect(next.session).not.toBe(first.session);
    // The number of sessions is still limited.
    const others = async () => {
      for (let made = 0; made < 100; made += 1) await pool.claims.createTicket({ claim: "a" });
    };
    await expect(others()).rejects.toThrow(/MILLPOND_E_TOO_MANY_SESSIONS/);
  });

  test("a device stays taken until no session uses it any more", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a" } });
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    const session = await agent.openSession(ticket);
    agent.isObedient = false;
    await pool.claims.releaseClaim({ name: "a" });
    await pool.claims.createClaim({ claim: { name: "b" } });
    await agent.settle();
    expect((await pool.claims.getClaim({ name: "b" })).claim?.state).toBe(ClaimState.PENDING);
    await agent.closeSession(session);
    expect((await pool.claims.getClaim({ name: "b" })).claim?.state).toBe(ClaimState.BOUND);
  });

  test("a ticket that nobody used opens nothing when its device is free again", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a" } });
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    await pool.claims.releaseClaim({ name: "a" });
    await pool.claims.createClaim({ claim: { name: "b" } });
    await agent.settle();
    expect((await pool.claims.getClaim({ name: "b" })).claim?.state).toBe(ClaimState.BOUND);
    await expect(agent.openSession(ticket)).rejects.toThrow("[MILLPOND_E_TICKET_STALE]");
    expect(agent.sessions.size).toBe(0);
  });

  test("a clock that is set back keeps no device and no session", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a" } });
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    const session = await agent.openSession(ticket);
    pool.clock.set(-3600);
    await pool.claims.releaseClaim({ name: "a" });
    await pool.claims.createClaim({ claim: { name: "b" } });
    await agent.settle();
    expect(agent.sessions.has(session)).toBe(false);
    await agent.settle();
    expect((await pool.claims.getClaim({ name: "b" })).claim?.state).toBe(ClaimState.BOUND);
  });

  test("epochs grow with every allocation", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const epochs: bigint[] = [];
    for (let round = 0; round < 3; round++) {
      const { claim } = await pool.claims.createClaim({ claim: { name: "a" } });
      epochs.push(claim?.allocation?.epoch ?? 0n);
      await pool.claims.releaseClaim({ name: "a" });
    }
    expect(epochs).toEqual([1n, 2n, 3n]);
  });
});

test("tickets: refused while the claim waits, when it has ended, and for no claim", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  await pool.claims.createClaim({ claim: { name: "a" } });
  await pool.claims.createClaim({ claim: { name: "b" } });
  await expect(pool.claims.createTicket({ claim: "b" })).rejects.toThrow(
    /the claim b waits: no device has all of its memory free.*\[MILLPOND_E_CLAIM_NOT_BOUND\]$/,
  );
  await pool.claims.releaseClaim({ name: "a" });
  await expect(pool.claims.createTicket({ claim: "a" })).rejects.toThrow(
    /the claim a has ended: released by its owner\. .*\[MILLPOND_E_CLAIM_ENDED\]$/,
  );
  await expect(pool.claims.createTicket({ claim: "c" })).rejects.toThrow(
    /no claim "c".*\[MILLPOND_E_NOT_FOUND\]$/,
  );
});

test("tickets are all different, and each opens one session", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  await pool.claims.createClaim({ claim: { name: "a" } });
  const tickets = await Promise.all(
    Array.from({ length: 10 }, () => pool.claims.createTicket({ claim: "a" })),
  );
  const hashes = tickets.map(({ ticket }) => createHash("sha256").update(ticket).digest("hex"));
  expect(new Set(hashes).size).toBe(10);
  expect(new Set(tickets.map(({ session }) => session)).size).toBe(10);
});

test("tickets: no more than twice the sessions that a claim may have can be open or about to begin, and another claim gets its own", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  const agent = pool.agent("node-a");
  for (const name of ["a", "b"]) {
    await pool.claims.createClaim({ claim: { name, memoryBytes: GiB, leaseSeconds: 3600 } });
  }
  const ticketOf = async (claim: string) => (await pool.claims.createTicket({ claim })).ticket;
  const opened = await agent.openSession(await ticketOf("a"));
  for (let n = 0; n < 31; n += 1) await ticketOf("a");
  await expect(ticketOf("a")).rejects.toThrow(
    /the claim a has 1 session and 31 tickets .*it may have 16 sessions\. .*\[MILLPOND_E_TOO_MANY_SESSIONS\]$/,
  );
  await ticketOf("b");
  // A session that has ended frees a place, and so does an expired ticket.
  await agent.closeSession(opened);
  await ticketOf("a");
  await expect(ticketOf("a")).rejects.toThrow("[MILLPOND_E_TOO_MANY_SESSIONS]");
  await pool.passTime(71);
  await ticketOf("a");
});

test("an ended claim says whether its owner or another administrator released it", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const { access } = as(pool, pool.controller.userToken);
  const { secret } = await access.createToken({ name: "ops", role: "admin" });
  const other = as(pool, secret);
  const endOf = async (name: string, release: typeof pool.claims.releaseClaim): Promise<string> => {
    await pool.claims.createClaim({ claim: { name } });
    await release({ name });
    return (await pool.claims.getClaim({ name })).claim?.reason ?? "";
  };
  // On a pool of `millpond up` everybody is an administrator.
  expect(await endOf("own", pool.claims.releaseClaim)).toBe("released by its owner");
  expect(await endOf("of-others", other.claims.releaseClaim)).toBe("released by an administrator");
});
