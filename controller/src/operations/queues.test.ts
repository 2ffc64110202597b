// SPDX-License-Identifier: Apache-2.0

import { Borrowing, type Claim, ClaimState, Locality, QueueService, ServiceClass } from "@millpond/api";
import { createClient } from "@connectrpc/connect";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ClaimSchema } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

function queuesOf(pool: TestPool) {
  return createClient(QueueService, makeTransport(pool.controller.url, pool.controller.userToken));
}

async function make(pool: TestPool, claim: MessageInitShape<typeof ClaimSchema>): Promise<Claim | undefined> {
  return (await pool.claims.createClaim({ claim: { leaseSeconds: 3600, ...claim } })).claim;
}

async function stateOf(pool: TestPool, name: string): Promise<ClaimState | undefined> {
  return (await pool.claims.getClaim({ name })).claim?.state;
}

describe("what claims ask", () => {
  test("an exclusive claim has its devices for itself, whatever others ask of them", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    await make(pool, { name: "small", memoryBytes: GiB, computePercent: 5 });
    const alone = await make(pool, { name: "alone", exclusive: true });
    expect(alone?.allocation?.devices).toMatchObject([
      { uuid: "GPU-1", memoryBytes: 4n * GiB, computePercent: 100 },
    ]);
    expect((await make(pool, { memoryBytes: GiB, computePercent: 1 }))?.allocation?.devices[0]?.uuid).toBe(
      "GPU-0",
    );
    await expect(make(pool, { exclusive: true, memoryBytes: GiB })).rejects.toThrow(/exclusive and a share/);
  });

  test("a gang is bound when its last member has come and all have room", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB], "node-b": [4n * GiB] });
    const member = { gang: "train", gangSize: 2 };
    const first = await make(pool, { name: "a", ...member });
    expect(first).toMatchObject({ state: ClaimState.PENDING, reason: "gang train has 1 of its 2 claims" });
    await expect(make(pool, { name: "x", ...member, gangSize: 3 })).rejects.toThrow(
      /gangSize is 3, but 2 for a/,
    );
    await make(pool, { name: "b", ...member });
    const claims = (await pool.claims.listClaims({})).claims;
    expect(claims.map(({ state, allocation }) => [state, allocation?.node])).toEqual([
      [ClaimState.BOUND, "node-a"],
      [ClaimState.BOUND, "node-b"],
    ]);
    await expect(make(pool, { name: "c", ...member })).rejects.toThrow(/already has its 2 claims/);
    await expect(make(pool, { gangSize: 2 })).rejects.toThrow(/gangSize is given without gang/);
  });

  test("members of a gang have ranks that stay, and a new one gets that of the one which it replaces", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const member = (name: string) => ({
      name,
      gang: "train",
      gangSize: 3,
      memoryBytes: GiB,
      computePercent: 10,
      rendezvous: `${name}.example.org:4000`,
    });
    for (const name of ["a", "b", "c"]) await make(pool, member(name));
    await pool.claims.releaseClaim({ name: "b" });
    await make(pool, member("d"));
    await make(pool, { name: "other", memoryBytes: GiB, computePercent: 10, rendezvous: "x:1" });
    const { claims } = await pool.claims.listClaims({ gang: "train" });
    expect(claims.map(({ name, gangRank, rendezvous }) => [name, gangRank, rendezvous])).toEqual([
      ["a", 0, "a.example.org:4000"],
      ["c", 2, "c.example.org:4000"],
      ["d", 1, "d.example.org:4000"],
    ]);
    expect((await pool.claims.getClaim({ name: "other" })).claim).toMatchObject({
      rendezvous: "",
      gangRank: 0,
    });
    for (const rendezvous of ["x", "x y:1", "x:1\nPATH=/tmp", ":1", "x:123456", `${"x".repeat(260)}:1`]) {
      await expect(make(pool, { ...member("e"), rendezvous })).rejects.toThrow(/not of the form host:port/);
    }
  });

  test("local-only needs the machine of the program; prefer-local goes there when it can", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const small = { memoryBytes: GiB };
    await expect(make(pool, { ...small, locality: Locality.LOCAL_ONLY })).rejects.toThrow(/clientHost/);
    const local = await make(pool, { ...small, locality: Locality.LOCAL_ONLY, clientHost: "boot" });
    expect(local?.allocation?.node).toBe("node-a");
    await expect(
      make(pool, { ...small, locality: Locality.LOCAL_ONLY, clientHost: "elsewhere" }),
    ).rejects.toThrow(/MILLPOND_E_IMPOSSIBLE/);
    expect((await make(pool, { ...small, clientHost: "elsewhere" }))?.state).toBe(ClaimState.BOUND);
  });

  test("a time limit ends a claim after notice", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await make(pool, { name: "timed", memoryBytes: GiB, timeLimitSeconds: 60, graceSeconds: 20 });
    await pool.passTime(40);
    expect((await pool.claims.getClaim({ name: "timed" })).claim).toMatchObject({
      state: ClaimState.BOUND,
      reason: "it is about to reach its time limit of 1m",
      preemptAt: BigInt(Math.floor(pool.clock.unixMs() / 1000) + 20),
    });
    await pool.passTime(20);
    expect((await pool.claims.getClaim({ name: "timed" })).claim).toMatchObject({
      state: ClaimState.RELEASED,
      reason: "it has reached its time limit of 1m",
    });
  });

  test("the notice of a time limit does not begin before half of the limit has passed", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await make(pool, { name: "brief", memoryBytes: GiB, timeLimitSeconds: 5 });
    const end = BigInt(Math.floor(pool.clock.unixMs() / 1000) + 5);
    const preemptAt = async () => (await pool.claims.getClaim({ name: "brief" })).claim?.preemptAt;
    await pool.passTime(2);
    expect(await preemptAt()).toBe(0n);
    await pool.passTime(1);
    expect(await preemptAt()).toBe(end);
  });

  test("an idle limit ends a claim after notice, also when the controller is killed meanwhile", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const reason = "its devices were idle for 30s, its idle limit";
    await make(pool, { name: "idle", idleLimitSeconds: 30, graceSeconds: 10, leaseSeconds: 3600 });
    await pool.passTime(29);
    expect((await pool.claims.getClaim({ name: "idle" })).claim).toMatchObject({ preemptAt: 0n });
    await pool.passTime(1);
    const preemptAt = BigInt(Math.floor(pool.clock.unixMs() / 1000) + 10);
    const told = { state: ClaimState.BOUND, reason, preemptAt };
    expect((await pool.claims.getClaim({ name: "idle" })).claim).toMatchObject(told);

    await pool.restart();
    await pool.addAgent("node-a", [4n * GiB]);
    await pool.passTime(9);
    expect((await pool.claims.getClaim({ name: "idle" })).claim).toMatchObject(told);
    await pool.passTime(1);
    const ended = { state: ClaimState.RELEASED, reason, preemptAt: 0n, requeues: 0 };
    expect((await pool.claims.getClaim({ name: "idle" })).claim).toMatchObject(ended);
  });

  test("who is told of the end of a claim and gives it back before ends it, and does not wait again", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await make(pool, { name: "timed", memoryBytes: GiB, timeLimitSeconds: 60 });
    await make(pool, { name: "idle", memoryBytes: GiB, idleLimitSeconds: 30 });
    await make(pool, { name: "kept", memoryBytes: GiB });
    await pool.passTime(30);
    for (const name of ["timed", "idle", "kept"]) {
      await pool.claims.releaseClaim({ name, requeue: true });
    }
    expect(await stateOf(pool, "timed")).toBe(ClaimState.RELEASED);
    expect(await stateOf(pool, "idle")).toBe(ClaimState.RELEASED);
    expect(await stateOf(pool, "kept")).toBe(ClaimState.BOUND);
  });

  test("variables of a program say the same as fields, and unknown ones are refused", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const { claim } = await pool.claims.createClaim({
      claim: { memoryBytes: GiB },
      variables: { MILLPOND_PRIORITY: "-7", MILLPOND_PREEMPTIBLE: "yes", MILLPOND_LABELS: "app=web" },
    });
    expect(claim).toMatchObject({
      priority: -7,
      preemptible: true,
      labels: { app: "web" },
      memoryBytes: GiB,
    });
    for (const [variables, message] of [
      [{ MILLPOND_PRIORITI: "1" }, /"MILLPOND_PRIORITI" is not a variable of a claim/],
      [{ MILLPOND_PRIORITY: "high" }, /MILLPOND_PRIORITY: "high" is not a whole number from -1000 to 1000/],
      [{ MILLPOND_GPUS: "2" }, /variables repeat fields of the claim/],
    ] as const) {
      await expect(pool.claims.createClaim({ claim: {}, variables })).rejects.toThrow(message);
    }
  });
});

describe("queues", () => {
  test("a claim with more right takes one back after its notice, also when the controller is killed meanwhile", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await make(pool, { name: "low", preemptible: true, graceSeconds: 10 });
    const { ticket } = await pool.claims.createTicket({ claim: "low" });
    await pool.agent("node-a").openSession(ticket);
    const high = await make(pool, { name: "high", priority: 5 });
    expect(high).toMatchObject({ state: ClaimState.PENDING, reason: "claim low is preempted for it" });
    expect((await pool.claims.getClaim({ name: "low" })).claim).toMatchObject({
      state: ClaimState.BOUND,
      reason: "preempted for claim high: its priority 0 is lower than 5",
      preemptAt: BigInt(Math.floor(pool.clock.unixMs() / 1000) + 10),
    });

    await pool.restart();
    const agent = await pool.addAgent("node-a", [4n * GiB]);
    await pool.passTime(11);
    expect(await stateOf(pool, "low")).toBe(ClaimState.PENDING);
    pool.clock.advance(1000);
    await agent.settle();
    expect(await stateOf(pool, "high")).toBe(ClaimState.BOUND);
    const low = (await pool.claims.getClaim({ name: "low" })).claim;
    expect(low).toMatchObject({ state: ClaimState.PENDING, requeues: 1, queuePosition: 1 });
    const { events } = await pool.pool.listEvents({ subject: "claim/low" });
    expect(events.map(({ kind }) => kind)).toEqual([
      "ClaimCreated",
      "ClaimBound",
      "ClaimPreempting",
      "ClaimRequeued",
    ]);
  });

  test("limits hold for what is granted, and raising one lets claims in", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    const queues = queuesOf(pool);
    await queues.putQueue({ queue: { name: "research", limit: { gpuMilli: 1500n } } });
    await make(pool, { name: "one", queue: "research" });
    const two = await make(pool, { name: "two", queue: "research" });
    expect(two?.reason).toBe("queue research is at its limit: this would bring it to 2 of 1.5 GPUs");
    expect(await pool.claims.explainClaim({ name: "two" })).toMatchObject({
      obstacle: "quota",
      expectedAt: 0n,
      waitsFor: ["one"],
      facts: ["queue research: 1 GPU in use, 1.5 at most", "tenant default: 1 GPU in use"],
    });
    await make(pool, { name: "wide", queue: "research", gpus: 2 });
    expect(await pool.claims.explainClaim({ name: "wide" })).toMatchObject({
      obstacle: "limit",
      waitsFor: [],
    });
    await pool.claims.releaseClaim({ name: "wide" });
    const listed = (await queues.listQueues({})).queues;
    expect(listed.map(({ name, waitingClaims, boundClaims }) => [name, waitingClaims, boundClaims])).toEqual([
      ["default", 0, 0],
      ["research", 1, 1],
    ]);
    expect(listed[1]).toMatchObject({
      borrowing: Borrowing.ANY,
      used: { gpuMilli: 1000n, memoryBytes: 4n * GiB },
    });
    await queues.putQueue({ queue: { name: "research", limit: { gpuMilli: 2000n } } });
    expect(await stateOf(pool, "two")).toBe(ClaimState.BOUND);
    await expect(queues.deleteQueue({ name: "research" })).rejects.toThrow(/has claims, such as one/);
    await expect(queues.deleteQueue({ name: "default" })).rejects.toThrow(
      /the queue default is always there and cannot be deleted/,
    );
    await expect(queues.deleteTenant({ name: "default" })).rejects.toThrow(
      /the tenant default is always there and cannot be deleted/,
    );
    await expect(
      queues.putQueue({ queue: { name: "x", guaranteed: { gpuMilli: 2n }, limit: { gpuMilli: 1n } } }),
    ).rejects.toThrow(/guaranteed more than its limit/);
    await pool.restart();
    expect((await queuesOf(pool).listQueues({})).queues[1]?.limit?.gpuMilli).toBe(2000n);
  });

  test("best-effort claims get what is idle, and go first", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await make(pool, {
      name: "idle",
      serviceClass: ServiceClass.BEST_EFFORT,
      graceSeconds: 1,
      priority: 100,
    });
    await make(pool, { name: "work", priority: -100 });
    await pool.passTime(2);
    expect([await stateOf(pool, "idle"), await stateOf(pool, "work")]).toEqual([
      ClaimState.PENDING,
      ClaimState.BOUND,
    ]);
  });
});

describe("service classes", () => {
  test("a best-effort claim holds memory and no compute: beside it a device can be given away whole", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    const bestEffort = { memoryBytes: 2n * GiB, serviceClass: ServiceClass.BEST_EFFORT };
    await make(pool, { name: "rest", ...bestEffort });
    await make(pool, { name: "work", memoryBytes: 4n * GiB, computePercent: 100 });
    await make(pool, { name: "more", ...bestEffort });
    await make(pool, { name: "burst", memoryBytes: 1n * GiB, serviceClass: ServiceClass.BURSTABLE });
    const states = await Promise.all(["rest", "work", "more", "burst"].map((name) => stateOf(pool, name)));
    expect(states).toEqual([ClaimState.BOUND, ClaimState.BOUND, ClaimState.BOUND, ClaimState.PENDING]);
    const { devices } = await pool.pool.listDevices({});
    expect(devices[0]).toMatchObject({ allocatedMemoryBytes: 8n * GiB, allocatedComputePercent: 100 });
    await pool.restart();
    const { claim } = await pool.claims.getClaim({ name: "rest" });
    expect(claim?.allocation).toMatchObject({
      serviceClass: ServiceClass.BEST_EFFORT,
      devices: [{ memoryBytes: 2n * GiB, computePercent: 0 }],
    });
  });

  test("agents and tickets say which class a claim has", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    await make(pool, { name: "x", memoryBytes: 2n * GiB, serviceClass: ServiceClass.BURSTABLE });
    const agent = pool.agent("a");
    await agent.until(
      () =>
        agent.desired?.allocations.find(({ claim }) => claim === "x")?.serviceClass ===
        ServiceClass.BURSTABLE,
    );
    const { ticket } = await pool.claims.createTicket({ claim: "x" });
    expect(JSON.parse(Buffer.from(ticket.split(".")[1] ?? "", "base64url").toString())).toMatchObject({
      serviceClass: "burstable",
    });
  });

  test("whoever asks for memory alone has named no limit of compute", async () => {
    const pool = await TestPool.start({ a: [8n * GiB, 8n * GiB, 8n * GiB] });
    await make(pool, { name: "memory", memoryBytes: 2n * GiB });
    await make(pool, { name: "both", memoryBytes: 2n * GiB, computePercent: 25 });
    await make(pool, { name: "whole", exclusive: true });
    const { claims } = await pool.claims.listClaims({});
    expect(Object.fromEntries(claims.map(({ name, serviceClass }) => [name, serviceClass]))).toEqual({
      memory: ServiceClass.BURSTABLE,
      both: ServiceClass.GUARANTEED,
      whole: ServiceClass.GUARANTEED,
    });
  });

  test("a best-effort claim has no share that could be asked for", async () => {
    const pool = await TestPool.start({ a: [8n * GiB] });
    const bestEffort = { name: "x", memoryBytes: 2n * GiB, serviceClass: ServiceClass.BEST_EFFORT };
    await expect(make(pool, { ...bestEffort, computePercent: 10 })).rejects.toThrow(/has no share/);
    await make(pool, bestEffort);
    await expect(pool.claims.resizeClaim({ name: "x", computePercent: 10 })).rejects.toThrow(/has no share/);
    await pool.claims.resizeClaim({ name: "x", memoryBytes: 4n * GiB });
    expect((await pool.claims.getClaim({ name: "x" })).claim?.allocation?.devices[0]?.computePercent).toBe(0);
  });
});

describe("explanations and usage", () => {
  test("why says for what a claim waits, behind whom and until when", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await make(pool, { name: "runs", timeLimitSeconds: 600 });
    await make(pool, { name: "first", queue: "default" });
    await make(pool, { name: "second" });
    const now = BigInt(Math.floor(pool.clock.unixMs() / 1000));
    expect(await pool.claims.explainClaim({ name: "first" })).toMatchObject({
      waitsFor: ["runs"],
      expectedAt: now + 600n,
    });
    expect(await pool.claims.explainClaim({ name: "second" })).toMatchObject({
      claim: { name: "second", queuePosition: 2, reason: expect.stringContaining("1 of 1 device is taken") },
      obstacle: "room",
      queueLength: 2,
      waitsFor: ["runs", "first"],
      expectedAt: 0n,
      nextReleaseClaim: "runs",
      nextReleaseAt: now + 600n,
      facts: ["queue default: 1 GPU in use", "tenant default: 1 GPU in use"],
    });
    expect(await pool.claims.explainClaim({ name: "runs" })).toMatchObject({ obstacle: "", expectedAt: 0n });
    await expect(pool.claims.explainClaim({ name: "nobody" })).rejects.toThrow(/NOT_FOUND/);
  });

  test("GPU-seconds are summed up by tenant and queue, for any period, over restarts", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const queues = queuesOf(pool);
    await queues.putTenant({ tenant: { name: "team-a" } });
    const start = BigInt(Math.floor(pool.clock.unixMs() / 1000));
    await make(pool, { name: "half", memoryPercent: 50, computePercent: 25, tenant: "team-a" });
    await make(pool, { name: "waits" });
    await pool.passTime(100);
    await pool.claims.releaseClaim({ name: "half" });
    await pool.passTime(40);
    await pool.restart();
    await pool.addAgent("node-a", [4n * GiB]);
    const all = await queuesOf(pool).getUsage({});
    expect(all.usage).toMatchObject([
      {
        tenant: "default",
        queue: "default",
        claims: 1,
        askedGpuSeconds: 140,
        grantedGpuSeconds: 40,
        waitedSeconds: 100,
      },
      {
        tenant: "team-a",
        queue: "default",
        claims: 1,
        askedGpuSeconds: 50,
        grantedGpuSeconds: 50,
        usedGpuSeconds: 0,
        wastedGpuSeconds: 50,
      },
    ]);
    await expect(queuesOf(pool).getUsage({ from: 86400n, to: 3600n })).rejects.toThrow(
      /the period from 1970-01-02T00:00:00Z to 1970-01-01T01:00:00Z ends before it begins/,
    );
    await expect(queuesOf(pool).getUsage({ from: 1n << 62n })).rejects.toThrow(/MILLPOND_E_INVALID/);
    const part = await queuesOf(pool).getUsage({ from: start + 90n, to: start + 110n });
    expect(part.usage.map(({ tenant, askedGpuSeconds }) => [tenant, askedGpuSeconds])).toEqual([
      ["default", 20],
      ["team-a", 5],
    ]);
    await expect(queuesOf(pool).getUsage({ from: 20n, to: 10n })).rejects.toThrow(/period/);
  });
});

test("metrics say what the pool has and who uses it, to those who have a token", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  await queuesOf(pool).putQueue({ queue: { name: "research", limit: { gpuMilli: 1500n } } });
  await make(pool, { name: "a", memoryPercent: 50, queue: "research" });
  await make(pool, { name: "b", queue: "research" });
  await pool.passTime(20);
  const url = `${pool.controller.url}/metrics`;
  const refused = await fetch(url);
  expect([refused.status, await refused.text()]).toEqual([
    401,
    expect.stringContaining("MILLPOND_E_UNAUTHENTICATED"),
  ]);
  const answer = await fetch(url, { headers: { authorization: `Bearer ${pool.controller.userToken}` } });
  expect(answer.headers.get("content-type")).toContain("version=0.0.4");
  const text = await answer.text();
  const device = 'node="node-a",device="0",uuid="GPU-0",model="Software GPU"';
  for (const line of [
    'millpond_nodes{state="ready"} 1',
    `millpond_device_memory_allocated_bytes{${device}} ${2n * GiB}`,
    `millpond_device_compute_allocated_ratio{${device}} 0.5`,
    'millpond_claims{queue="research",state="pending"} 1',
    'millpond_oldest_pending_claim_seconds{queue="research"} 20',
    'millpond_queue_used_gpus{queue="research"} 0.5',
    'millpond_queue_limit_gpus{queue="research"} 1.5',
    'millpond_tenant_used_gpus{tenant="default"} 0.5',
    'millpond_events_total{kind="ClaimBound"} 1',
    'millpond_claim_wait_seconds_count{queue="research"} 1',
    "# TYPE millpond_change_seconds histogram",
  ]) {
    expect(text).toContain(`${line}\n`);
  }
});
