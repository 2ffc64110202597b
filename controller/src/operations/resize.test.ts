// SPDX-License-Identifier: Apache-2.0

import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, ClaimState, QueueService } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

async function sizesOf(pool: TestPool, name: string) {
  const { claim } = await pool.claims.getClaim({ name });
  return claim?.allocation?.devices.map(({ memoryBytes, computePercent }) => [
    memoryBytes / GiB,
    computePercent,
  ]);
}

/** Capacity of a device that is accounted for: GiB and percent. */
async function booked(pool: TestPool, node = "a") {
  const { devices } = await pool.pool.listDevices({});
  const device = devices.find((each) => each.node === node);
  return [(device?.allocatedMemoryBytes ?? 0n) / GiB, device?.allocatedComputePercent];
}

async function bindWithSession(pool: TestPool, name: string, memoryBytes: bigint, computePercent: number) {
  const { claim } = await pool.claims.createClaim({ claim: { name, memoryBytes, computePercent } });
  const agent = pool.agent(claim?.allocation?.node ?? "");
  const { ticket } = await pool.claims.createTicket({ claim: name });
  const id = await agent.openSession(ticket);
  const session = agent.sessions.get(id);
  if (session === undefined) {
    throw new Error("there is no session");
  }
  return session;
}

/** Resizes while the agent keeps calling. */
async function resize(pool: TestPool, request: Parameters<TestPool["claims"]["resizeClaim"]>[0]) {
  const { claim } = await pool.claims.resizeClaim(request);
  return claim;
}

describe("a claim whose program runs", () => {
  test("grows at once where there is room, and its next tickets and its workers know", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    const session = await bindWithSession(pool, "x", 2n * GiB, 20);

    const claim = await resize(pool, { name: "x", memoryBytes: 6n * GiB });
    expect(claim?.memoryBytes).toBe(6n * GiB);
    expect(claim?.computePercent).toBe(20);
    expect(await booked(pool)).toEqual([6n, 20]);
    await pool.agent("a").until(() => session.devices[0]?.memoryBytes === 6n * GiB);

    const { ticket } = await pool.claims.createTicket({ claim: "x" });
    const next = pool.agent("a").sessions.get(await pool.agent("a").openSession(ticket));
    expect(next?.devices[0]?.memoryBytes).toBe(6n * GiB);
  });

  test("shrinks when its workers have said that they fit, and not before", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    await bindWithSession(pool, "x", 6n * GiB, 60);
    await pool.claims.createClaim({ claim: { name: "waits", memoryBytes: 4n * GiB, computePercent: 40 } });
    pool.agent("a").isObedient = false;

    const resized = resize(pool, { name: "x", memoryBytes: 2n * GiB, computePercent: 80 });
    await pool.agent("a").until(({ allocations }) => allocations[0]?.devices[0]?.memoryBytes === 2n * GiB);
    await pool.agent("a").settle();
    // The larger size is accounted for, and the smaller is what may be used.
    expect(await booked(pool)).toEqual([6n, 80]);
    expect(await sizesOf(pool, "x")).toEqual([[2n, 60]]);

    pool.agent("a").isObedient = true;
    await pool.agent("a").settle();
    expect((await resized)?.memoryBytes).toBe(2n * GiB);
    expect(await sizesOf(pool, "x")).toEqual([[2n, 80]]);
    expect(await booked(pool)).toEqual([2n, 80]);
    expect((await resize(pool, { name: "x", computePercent: 50 }))?.computePercent).toBe(50);
    expect((await pool.claims.getClaim({ name: "waits" })).claim?.state).toBe(ClaimState.BOUND);
  });

  test("keeps its size when its program has more in use, with the numbers", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    const session = await bindWithSession(pool, "x", 6n * GiB, 60);
    session.memoryUsed = 3n * GiB;

    await expect(resize(pool, { name: "x", memoryBytes: 2n * GiB, computePercent: 80 })).rejects.toThrow(
      /the claim x keeps its size: 3221225472 bytes are in use\. Free memory .* \[MILLPOND_E_IN_USE\]/,
    );
    expect(await sizesOf(pool, "x")).toEqual([[6n, 60]]);
    expect(await booked(pool)).toEqual([6n, 60]);
    session.memoryUsed = 1n * GiB;
    expect((await resize(pool, { name: "x", memoryBytes: 2n * GiB }))?.memoryBytes).toBe(2n * GiB);
    expect(session.devices[0]?.memoryBytes).toBe(2n * GiB);
  });

  test("keeps its size when its node does not answer", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    await bindWithSession(pool, "x", 6n * GiB, 60);
    pool.agent("a").isObedient = false;

    const resized = resize(pool, { name: "x", memoryBytes: 2n * GiB });
    const refusal = resized.catch((error: unknown) => String(error));
    const isRefused = expect.stringMatching(
      /x keeps its size: the agent of node a has not confirmed it within 10 s.*MILLPOND_E_NODE_NOT_READY/,
    );
    await pool.agent("a").until(({ allocations }) => allocations[0]?.devices[0]?.memoryBytes === 2n * GiB);
    await expect(resize(pool, { name: "x", memoryBytes: 1n * GiB })).rejects.toThrow(/is being resized/);
    await pool.passTime(10);
    expect(await refusal).toEqual(isRefused);
    expect(await sizesOf(pool, "x")).toEqual([[6n, 60]]);
    expect(await booked(pool)).toEqual([6n, 60]);
  });

  test("is refused what its device, its queue or its tenant has not left", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    await bindWithSession(pool, "x", 2n * GiB, 20);
    await pool.claims.createClaim({ claim: { name: "other", memoryBytes: 4n * GiB, computePercent: 50 } });

    await expect(resize(pool, { name: "x", memoryBytes: 5n * GiB })).rejects.toThrow(
      "5 GiB is 3 GiB more than the claim has on a/0, where 2 GiB is left.",
    );
    await expect(resize(pool, { name: "x", computePercent: 60 })).rejects.toThrow(
      "60% compute is 40% more than the claim has on a/0, where 30% is left.",
    );
    await pool.claims.releaseClaim({ name: "other" });
    const queues = createClient(QueueService, makeTransport(pool.controller.url, pool.controller.userToken));
    await queues.putTenant({
      tenant: { name: "default", limit: { memoryBytes: 3n * GiB } },
      changeOnly: true,
    });
    await expect(resize(pool, { name: "x", memoryBytes: 4n * GiB })).rejects.toThrow(
      "tenant default is at its limit: this would bring it to 4 GiB of 3 GiB of memory.",
    );
    expect((await resize(pool, { name: "x", memoryBytes: 3n * GiB }))?.memoryBytes).toBe(3n * GiB);
    expect(await booked(pool)).toEqual([3n, 20]);
  });

  test("keeps its number of vGPUs", async () => {
    const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB] });
    await bindWithSession(pool, "x", 2n * GiB, 20);
    await expect(resize(pool, { name: "x", gpus: 2 })).rejects.toThrow(
      /x has 1 open session, and keeps its number of vGPUs, 1, until none is open.*MILLPOND_E_IN_USE/,
    );
  });

  test("goes on being resized when the controller is started again", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    await bindWithSession(pool, "x", 6n * GiB, 60);
    pool.agent("a").isObedient = false;
    const caller = new AbortController();
    const resized = pool.claims.resizeClaim({ name: "x", memoryBytes: 2n * GiB }, { signal: caller.signal });
    const lost = resized.catch((error: unknown) => String(error));
    await pool.agent("a").until(({ allocations }) => allocations[0]?.devices[0]?.memoryBytes === 2n * GiB);
    const sessions = [...pool.agent("a").sessions];
    caller.abort();
    expect(await lost).toContain("aborted");
    await pool.restart();
    expect(await booked(pool)).toEqual([6n, 60]);

    const agent = await pool.addAgent("a", [8n * GiB]);
    for (const [id, session] of sessions) {
      agent.sessions.set(id, session);
    }
    await agent.until(({ allocations }) => allocations[0]?.devices[0]?.memoryBytes === 2n * GiB);
    await agent.settle();
    await agent.settle();
    expect(await booked(pool)).toEqual([2n, 60]);
    expect((await pool.claims.getClaim({ name: "x" })).claim?.memoryBytes).toBe(2n * GiB);
  });
});

describe("what is kept for others", () => {
  const lasting = { leaseSeconds: 3600 };
  const small = { memoryBytes: 2n * GiB, computePercent: 10, ...lasting };

  async function openSession(pool: TestPool, name: string): Promise<void> {
    const { ticket } = await pool.claims.createTicket({ claim: name });
    await pool.agent("a").openSession(ticket);
  }

  /** On a device of 8 GiB, of which 2 GiB and 70% are free. One claim waits for another to end. */
  async function startWithReservation(): Promise<TestPool> {
    const pool = await TestPool.start({ a: [8n * GiB] });
    const queues = createClient(QueueService, makeTransport(pool.controller.url, pool.controller.userToken));
    await queues.putTenant({ tenant: { name: "team-b" } });
    await pool.claims.createClaim({ claim: { name: "x", ...small } });
    await pool.claims.createClaim({
      claim: { name: "urgent", ...small, memoryBytes: GiB, priority: 5 },
    });
    const brief = { ...small, memoryBytes: GiB, graceSeconds: 1 };
    await pool.claims.createClaim({ claim: { name: "ends-first", ...brief, timeLimitSeconds: 80 } });
    await pool.claims.createClaim({
      claim: { name: "ends", ...brief, memoryBytes: 2n * GiB, timeLimitSeconds: 100 },
    });
    const large = { memoryBytes: 5n * GiB, computePercent: 70, ...lasting };
    await pool.claims.createClaim({ claim: { name: "large", tenant: "team-b", ...large } });
    await pool.passTime(60);
    expect(await pool.claims.explainClaim({ name: "large" })).toMatchObject({
      waitsFor: ["ends-first", "ends"],
    });
    return pool;
  }

  test("is not for a claim that grows: the refusal has the numbers, and names whom the caller sees", async () => {
    const pool = await startWithReservation();
    await openSession(pool, "x");
    await expect(resize(pool, { name: "x", memoryBytes: 3n * GiB })).rejects.toThrow(
      "3 GiB is 1 GiB more than the claim has on a/0, where 0 MiB is left; the rest is reserved for claim large, which has waited 1m.",
    );
    await expect(resize(pool, { name: "x", computePercent: 31 })).rejects.toThrow(
      "31% compute is 21% more than the claim has on a/0, where 10% is left; the rest is reserved for claim large",
    );
    const admin = makeTransport(pool.controller.url, pool.controller.userToken);
    await createClient(QueueService, admin).putTenant({ tenant: { name: "default" } });
    const { secret } = await createClient(AccessService, admin).createToken({
      name: "ann",
      role: "user",
      tenant: "default",
    });
    const ann = createClient(ClaimService, makeTransport(pool.controller.url, secret));
    await expect(ann.resizeClaim({ name: "x", memoryBytes: 3n * GiB })).rejects.toThrow(
      "reserved for a claim of another tenant, which has waited 1m.",
    );
    // The unreserved rest is available to every claim.
    expect((await resize(pool, { name: "x", computePercent: 20 }))?.computePercent).toBe(20);
    await pool.passTime(40);
    expect((await pool.claims.getClaim({ name: "large" })).claim?.state).toBe(ClaimState.BOUND);
  });

  test("is for a claim that would come first, or gives it back before it is needed", async () => {
    const pool = await startWithReservation();
    for (const name of ["ends-first", "urgent"]) {
      await openSession(pool, name);
      expect((await resize(pool, { name, memoryBytes: 2n * GiB }))?.memoryBytes).toBe(2n * GiB);
    }
  });

  test("is not for a claim that is placed again; it may have what it has, and what is not kept", async () => {
    const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB, 8n * GiB, 8n * GiB, 8n * GiB] });
    await pool.claims.createClaim({ claim: { name: "x", ...lasting } });
    await pool.claims.createClaim({
      claim: { name: "ends", timeLimitSeconds: 100, graceSeconds: 1, ...lasting },
    });
    await pool.claims.createClaim({ claim: { name: "large", gpus: 3, ...lasting } });
    await pool.claims.createClaim({ claim: { name: "gang-a", gpus: 1, gang: "g", gangSize: 2, ...lasting } });
    await pool.claims.releaseClaim({ name: "large" });
    await pool.claims.createClaim({ claim: { name: "gang-b", gpus: 3, gang: "g", gangSize: 2, ...lasting } });
    await pool.passTime(60);
    // Three devices are free, and are reserved together with the one that will be released.
    await expect(resize(pool, { name: "x", gpus: 2 })).rejects.toThrow(
      /free capacity is reserved for gang g, which has waited 1m; it keeps its allocation\..*MILLPOND_E_NO_CAPACITY/,
    );
    expect((await resize(pool, { name: "x", memoryBytes: 4n * GiB }))?.state).toBe(ClaimState.BOUND);
    await pool.passTime(40);
    expect((await pool.claims.getClaim({ name: "gang-b" })).claim?.state).toBe(ClaimState.BOUND);
  });
});

describe("a claim without an open session", () => {
  test("is placed again with another number of vGPUs, or keeps what it has", async () => {
    const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB, 8n * GiB] });
    const session = await bindWithSession(pool, "x", 8n * GiB, 100);
    await pool.agent("a").closeSession(session.id);

    expect((await resize(pool, { name: "x", gpus: 2 }))?.allocation?.devices).toHaveLength(2);
    await pool.claims.createClaim({ claim: { name: "other" } });
    const before = (await pool.claims.getClaim({ name: "x" })).claim?.allocation;
    await expect(resize(pool, { name: "x", gpus: 3 })).rejects.toThrow(
      /it keeps its allocation\. .*--wait\. \[MILLPOND_E_NO_CAPACITY\]/,
    );
    expect((await pool.claims.getClaim({ name: "x" })).claim?.allocation).toEqual(before);
    await expect(resize(pool, { name: "x", gpus: 5 })).rejects.toThrow(/MILLPOND_E_IMPOSSIBLE/);

    const waiting = await resize(pool, { name: "x", gpus: 3, wait: true });
    expect(waiting?.state).toBe(ClaimState.PENDING);
    await pool.claims.releaseClaim({ name: "other" });
    expect((await pool.claims.getClaim({ name: "x" })).claim?.allocation?.devices).toHaveLength(3);
    expect(
      (await resize(pool, { name: "x", gpus: 1, memoryPercent: 50, computePercent: 10 }))?.allocation
        ?.devices,
    ).toMatchObject([{ memoryBytes: 4n * GiB, computePercent: 10 }]);
  });

  test("stays beside its gang, where that is to be on one node", async () => {
    const pool = await TestPool.start({ a: [8n * GiB], b: [8n * GiB, 8n * GiB] });
    const member = { gang: "g", gangSize: 2, sameNode: true };
    await pool.claims.createClaim({ claim: { name: "one", ...member } });
    await pool.claims.createClaim({ claim: { name: "two", ...member } });
    expect((await resize(pool, { name: "two", memoryBytes: 4n * GiB }))?.allocation?.node).toBe("b");
  });

  test("is placed again within its limits, of which it has what it had", async () => {
    const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB, 8n * GiB] });
    const queues = createClient(QueueService, makeTransport(pool.controller.url, pool.controller.userToken));
    await queues.putQueue({ queue: { name: "q", limit: { gpuMilli: 2000n } } });
    await pool.claims.createClaim({ claim: { name: "x", queue: "q" } });
    expect((await resize(pool, { name: "x", gpus: 2 }))?.allocation?.devices).toHaveLength(2);
    await expect(resize(pool, { name: "x", gpus: 3 })).rejects.toThrow(
      /queue q is at its limit: this would bring it to 3 of 2 GPUs; it keeps its allocation.*MILLPOND_E_NO_CAPACITY/,
    );
  });

  test("keeps its place, and so its time, when it has a time limit", async () => {
    const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB] });
    const asked = {
      name: "x",
      memoryBytes: 2n * GiB,
      timeLimitSeconds: 40,
      graceSeconds: 10,
      leaseSeconds: 3600,
    };
    const { claim } = await pool.claims.createClaim({ claim: asked });
    await expect(resize(pool, { name: "x", gpus: 2 })).rejects.toThrow(
      /x has a time limit, and keeps its number of vGPUs, 1, until it ends.*MILLPOND_E_IN_USE/,
    );
    await pool.passTime(20);
    const resized = await resize(pool, { name: "x", memoryBytes: GiB });
    expect(resized).toMatchObject({ boundAt: claim?.boundAt, memoryBytes: GiB });
    expect(await booked(pool)).toEqual([1n, 13]);
    await pool.passTime(10);
    await expect(resize(pool, { name: "x", memoryBytes: 2n * GiB })).rejects.toThrow(
      /the claim x has been given notice: it is about to reach its time limit of 40s/,
    );
  });

  test("is not placed again while one may still be opened", async () => {
    const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB] });
    await pool.claims.createClaim({ claim: { name: "x", memoryBytes: 2n * GiB } });
    await pool.claims.createTicket({ claim: "x" });
    await expect(resize(pool, { name: "x", gpus: 2 })).rejects.toThrow(/a session that is being opened/);
    await pool.passTime(15);
    await pool.claims.waitClaim({ name: "x" });
    await pool.passTime(14);
    await pool.claims.waitClaim({ name: "x" });
    await expect(resize(pool, { name: "x", gpus: 2 })).rejects.toThrow(
      /MILLPOND_E_CLAIM_ENDED|MILLPOND_E_IN_USE/,
    );
  });
});

test.each([
  ["an unknown claim", { name: "nobody", gpus: 2 }, /MILLPOND_E_NOT_FOUND/],
  ["nothing", { name: "x" }, /neither a number of vGPUs nor memory nor compute is given/],
  ["too many vGPUs", { name: "x", gpus: 65 }, /gpus is 65/],
  ["too little memory", { name: "x", memoryBytes: 1n }, /MILLPOND_E_INVALID/],
  ["memory twice", { name: "x", memoryBytes: GiB, memoryPercent: 1 }, /both given/],
  ["too much compute", { name: "x", computePercent: 101 }, /computePercent is 101/],
  ["a share of an exclusive claim", { name: "whole", computePercent: 50 }, /the claim whole is exclusive/],
])("%s is refused, and changes nothing", async (_what, request, why) => {
  const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB] });
  await pool.claims.createClaim({ claim: { name: "x", memoryBytes: 2n * GiB } });
  await pool.claims.createClaim({ claim: { name: "whole", exclusive: true } });
  const before = await pool.claims.listClaims({});
  await expect(resize(pool, request)).rejects.toThrow(why);
  const now = await pool.claims.listClaims({});
  expect(now.claims.map(({ version }) => version)).toEqual(before.claims.map(({ version }) => version));
});
