// SPDX-License-Identifier: Apache-2.0

import { ClaimState, DeviceHealth, NodeLoss, NodeState } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { FakeAgent, fakeDevice } from "../testing/fake-agent.ts";
import { startTenants } from "../testing/tenants.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { until } from "../testing/until.ts";

/** Lets an answer arrive that waits for agents' reports. */
async function whileAgentsCall<T>(pool: TestPool, answer: Promise<T>): Promise<T> {
  const call = setInterval(() => void Promise.all(pool.agents.map((agent) => agent.tell())), 20);
  try {
    return await answer;
  } finally {
    clearInterval(call);
  }
}

describe("nodes", () => {
  test("a node that is lost keeps its claims and gets no new ones until it is back", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const { claim } = await pool.claims.createClaim({
      claim: { name: "a", memoryBytes: GiB, leaseSeconds: 5 },
    });
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    await pool.agent("node-a").openSession(ticket);
    await pool.killAgent("node-a");
    await pool.passTime(10);

    expect((await pool.pool.getNode({ name: "node-a" })).node).toMatchObject({
      state: NodeState.NOT_READY,
      reason: "its agent has not reported for 10 s",
    });
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    expect((await pool.claims.explainClaim({ name: "a" })).facts[0]).toBe(
      "node node-a: its agent has not reported for 10 s; the claim waits for it",
    );
    await expect(pool.claims.createTicket({ claim: "a" })).rejects.toThrow(
      /node node-a of claim a has been silent for 10 s\. .*\[MILLPOND_E_NODE_NOT_READY\]$/,
    );
    const waiting = await pool.claims.createClaim({ claim: { name: "b", memoryBytes: GiB } });
    expect(waiting.claim).toMatchObject({
      state: ClaimState.PENDING,
      reason: "no device of the pool takes claims now: 1 node not ready",
    });

    const agent = await pool.addAgent("node-a", [4n * GiB]);
    const bound = await pool.claims.getClaim({ name: "b" });
    expect(bound.claim?.state).toBe(ClaimState.BOUND);
    // The new agent reports no session, but a ticket was requested just now: the claim is still in use.
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.passTime(5);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.RELEASED);
    expect(agent.desired?.allocations.map((each) => each.claim)).not.toContain("a");
    expect(claim?.allocation?.epoch).toBeLessThan(bound.claim?.allocation?.epoch ?? 0n);
    const kinds = (await pool.pool.listEvents({ subject: "node/node-a" })).events.map(({ kind }) => kind);
    expect(kinds).toEqual(["NodeJoined", "NodeLost", "NodeReady"]);
  });

  test("what its driver measures of a card is shown while its node is in contact", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    const card = {
      temperatureCelsius: 41,
      powerMilliwatts: 90_250,
      smClockMhz: 1980,
      eccUncorrectedErrors: 2,
      xids: 5,
    };
    pool.agent("node-a").figures = [
      { uuid: "GPU-1", card },
      { uuid: "GPU-9", card },
    ];
    await pool.agent("node-a").sync();
    const cards = async () => (await pool.pool.listDevices({})).devices.map((device) => device.card);
    expect(await cards()).toMatchObject([undefined, card]);
    const headers = { authorization: `Bearer ${pool.controller.userToken}` };
    const metrics = await (await fetch(`${pool.controller.url}/metrics`, { headers })).text();
    const of = (name: string) =>
      metrics.match(new RegExp(`^millpond_device_${name}\\{.*device="1".*\\} (.*)$`, "m"))?.[1];
    expect(["temperature_celsius", "power_watts", "power_limit_watts", "sm_clock_hertz"].map(of)).toEqual([
      "41",
      "90.25",
      undefined,
      "1980000000",
    ]);
    expect(["ecc_corrected_errors_total", "ecc_uncorrected_errors_total", "xids_total"].map(of)).toEqual([
      undefined,
      "2",
      "5",
    ]);
    await pool.killAgent("node-a");
    await pool.passTime(10);
    expect(await cards()).toEqual([undefined, undefined]);
  });

  test("temperature, power and clocks of a card are for administrators, and for a tenant that has it whole", async () => {
    const { pool, admin, ann, bob } = await startTenants();
    const card = { temperatureCelsius: 41 };
    pool.agent("node-a").figures = [0, 1].map((index) => ({ uuid: `GPU-${index}`, card }));
    await pool.agent("node-a").sync();
    await ann.claims.createClaim({ claim: { name: "whole", memoryBytes: GiB, onlyDevices: ["GPU-0"] } });
    await bob.claims.createClaim({ claim: { name: "half", memoryBytes: GiB / 2n, onlyDevices: ["GPU-1"] } });
    const known = async ({ pool: nodes }: typeof ann) => {
      const { devices } = await nodes.listDevices({});
      const { node } = await nodes.getNode({ name: "node-a" });
      expect(node?.devices.map((device) => device.card?.temperatureCelsius)).toEqual(
        devices.map((device) => device.card?.temperatureCelsius),
      );
      return devices.map((device) => device.card?.temperatureCelsius);
    };
    expect(await known(admin)).toEqual([41, 41]);
    expect(await known(ann)).toEqual([41, undefined]);
    expect(await known(bob)).toEqual([undefined, undefined]);
    const { secret } = await admin.access.createToken({ name: "prometheus", role: "user", tenant: "team-b" });
    for (const [token, hasFigures] of [
      [pool.controller.userToken, true],
      [pool.controller.agentToken, false],
      [secret, false],
    ] as const) {
      const headers = { authorization: `Bearer ${token}` };
      const metrics = await (await fetch(`${pool.controller.url}/metrics`, { headers })).text();
      expect(metrics).toContain("\nmillpond_device_memory_bytes{");
      expect(metrics.includes("\nmillpond_device_temperature_celsius{")).toBe(hasFigures);
    }
  });

  test("a node whose agent stops in order is not ready at once, and is again with the next agent", async () => {
    const pool = await TestPool.start();
    const { url, agentToken: token } = pool.controller;
    const devices = [fakeDevice(0, 4n * GiB)];
    await using before = new FakeAgent({ url, token, clock: pool.clock, node: "node-a", devices });
    await before.sync();
    expect((await pool.pool.getNode({ name: "node-a" })).node?.state).toBe(NodeState.READY);
    await before.sync({ isLast: true });
    expect((await pool.pool.getNode({ name: "node-a" })).node?.state).toBe(NodeState.NOT_READY);
    const { claim } = await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB } });
    expect(claim?.state).toBe(ClaimState.PENDING);
    await pool.addAgent("node-a", [4n * GiB], { before });
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    const { events } = await pool.pool.listEvents({ subject: "node/node-a" });
    expect(events.map(({ kind, message }) => `${kind}: ${message}`).slice(1)).toEqual([
      "NodeLost: its agent was stopped",
      expect.stringContaining("NodeReady"),
    ]);
  });

  test("a cordoned node takes no new claims", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB } });
    await pool.pool.cordonNode({ name: "node-a", cordoned: true });
    await pool.claims.createClaim({ claim: { name: "b", memoryBytes: GiB } });
    const states = async () => (await pool.claims.listClaims({})).claims.map(({ state }) => state);
    expect(await states()).toEqual([ClaimState.BOUND, ClaimState.PENDING]);
    const { node } = await pool.pool.cordonNode({ name: "node-a", cordoned: false });
    expect(node?.cordoned).toBe(false);
    expect(await states()).toEqual([ClaimState.BOUND, ClaimState.BOUND]);
  });

  test("an unhealthy device takes no new claims, and no session of those it has", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB } });
    const [device] = agent.devices;
    agent.devices = [{ ...device, health: DeviceHealth.UNHEALTHY, healthReason: "Xid 79" }];
    await agent.sync();
    await pool.claims.createClaim({ claim: { name: "b", memoryBytes: GiB } });
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    expect((await pool.claims.getClaim({ name: "b" })).claim).toMatchObject({
      state: ClaimState.PENDING,
      reason: "no device of the pool takes claims now: 1 device unhealthy",
    });
    await expect(pool.claims.createTicket({ claim: "a" })).rejects.toThrow(
      /device node-a\/0 of claim a is unhealthy: Xid 79\. .*\[MILLPOND_E_DEVICE_UNHEALTHY\]$/,
    );
  });

  test.each([
    ["says that it is unhealthy", (devices: readonly unknown[]) => devices.length],
    ["finds it no more", (devices: readonly unknown[]) => devices.length - 1],
  ])("a device whose agent %s is taken from the claims that want that, after 30 s", async (_what, count) => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    const agent = pool.agent("node-a");
    const make = (name: string, nodeLoss: NodeLoss) =>
      pool.claims.createClaim({ claim: { name, exclusive: true, leaseSeconds: 3600, nodeLoss } });
    const stateOf = async (name: string) => (await pool.claims.getClaim({ name })).claim;
    await make("moves", NodeLoss.REQUEUE);
    const { ticket } = await pool.claims.createTicket({ claim: "moves" });
    const session = await agent.openSession(ticket);
    const before = (await stateOf("moves"))?.allocation?.devices[0]?.uuid;
    const well = agent.devices;
    const ill = well.map((device) =>
      device.uuid === before ? { ...device, health: DeviceHealth.UNHEALTHY, healthReason: "Xid 79" } : device,
    );
    agent.devices = ill.toSorted((a, b) => Number(a.uuid === before) - Number(b.uuid === before));
    agent.devices = agent.devices.slice(0, count(agent.devices));
    await agent.sync();
    await pool.passTime(29);
    expect(await stateOf("moves")).toMatchObject({ state: ClaimState.BOUND, requeues: 0 });
    await pool.passTime(32);
    const moved = await stateOf("moves");
    expect(moved).toMatchObject({ state: ClaimState.BOUND, requeues: 1 });
    expect(moved?.allocation?.devices[0]?.uuid).not.toBe(before);
    // Devices that a session may still hold are not reassigned, nor are unhealthy ones.
    await agent.settle();
    expect(agent.sessions.has(session)).toBe(false);
    await make("waits", NodeLoss.FAIL);
    expect((await stateOf("waits"))?.state).toBe(ClaimState.PENDING);
    agent.devices = well;
    await agent.sync();
    expect((await stateOf("waits"))?.state).toBe(ClaimState.BOUND);
    await pool.passTime(90);
    expect((await stateOf("waits"))?.state).toBe(ClaimState.BOUND);
  });

  test("a device of which the driver has reported a fault is healthy again when it is uncordoned", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    const agent = pool.agent("node-a");
    const report = async (fault: bigint, healthReason: string) => {
      const ill = { health: DeviceHealth.UNHEALTHY, healthReason, fault };
      agent.devices = agent.devices.map((device) =>
        device.uuid === "GPU-0" ? { ...device, ...ill } : device,
      );
      await agent.sync();
    };
    const healths = async () => (await pool.pool.listDevices({})).devices.map(({ health }) => health);
    await report(3n, "the driver has reported Xid 79");
    expect(await healths()).toEqual([DeviceHealth.UNHEALTHY, DeviceHealth.HEALTHY]);
    const uncordon = (deviceUuid: string) =>
      pool.pool.cordonNode({ name: "node-a", cordoned: false, deviceUuid });
    await uncordon("GPU-1");
    expect(await healths()).toEqual([DeviceHealth.UNHEALTHY, DeviceHealth.HEALTHY]);
    const answer = await whileAgentsCall(pool, uncordon("GPU-0"));
    expect(answer.node?.devices.map(({ health }) => health)).toEqual([
      DeviceHealth.HEALTHY,
      DeviceHealth.HEALTHY,
    ]);
    // The next fault is a different one, and faults that the driver did not report are not cleared. A call that a later
    // one overtakes is answered before its report is stored.
    await report(4n, "the driver has reported Xid 79");
    await until("the next fault", async () =>
      (await healths())[0] === DeviceHealth.UNHEALTHY ? true : undefined,
    );
    await report(0n, "it has fallen off its bus");
    expect((await uncordon("GPU-0")).node?.devices[0]).toMatchObject({
      health: DeviceHealth.UNHEALTHY,
      healthReason: "it has fallen off its bus",
    });
    const kinds = (await pool.pool.listEvents({ subject: "device/node-a/0" })).events.map(({ kind }) => kind);
    expect(kinds.slice(0, 3)).toEqual(["DeviceUnhealthy", "DeviceHealthy", "DeviceUnhealthy"]);
  });

  test("a device that is gone is kept in the books for as long as somebody holds it", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const agent = pool.agent("node-a");
    await pool.claims.createClaim({ claim: { name: "a" } });
    agent.devices = [];
    await agent.sync();
    expect((await pool.pool.listDevices({})).devices).toMatchObject([
      {
        uuid: "GPU-0",
        health: DeviceHealth.UNHEALTHY,
        healthReason: "its agent no longer finds it",
        virtualGpus: 1,
      },
    ]);
    await pool.claims.releaseClaim({ name: "a" });
    await agent.sync();
    expect((await pool.pool.listDevices({})).devices).toEqual([]);
  });

  test("a second agent with the name of a node in contact is refused", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await expect(pool.addAgent("node-a", [GiB])).rejects.toThrow(
      /the node name node-a is in use by the agent at http:.*\[MILLPOND_E_NODE_NAME_TAKEN\]$/,
    );
    expect((await pool.pool.listDevices({})).devices).toMatchObject([{ memoryBytes: 4n * GiB }]);
  });

  test("an agent that was killed can be replaced before its node is lost", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.killAgent("node-a");
    const replace = async () => {
      pool.clock.advance(100);
      return await pool.addAgent("node-a", [4n * GiB]).then(() => "accepted", String);
    };
    await expect.poll(replace, { interval: 1 }).toBe("accepted");
    expect(pool.clock.monotonicMs()).toBeLessThanOrEqual(3_100);
    expect((await pool.pool.getNode({ name: "node-a" })).node?.state).toBe(NodeState.READY);
  });

  test("devices with the same UUID on two nodes are two devices", async () => {
    const pool = await TestPool.start({ "node-a": [GiB], "node-b": [GiB] });
    await pool.claims.createClaim({ claim: {} });
    await pool.claims.createClaim({ claim: {} });
    const where = (await pool.claims.listClaims({})).claims.map(({ allocation }) => allocation?.node);
    expect(where).toEqual(["node-a", "node-b"]);
  });
});

describe("a node that is lost", () => {
  test("gives its claims up to others that want that, and holds nothing twice when it is back", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB], "node-b": [4n * GiB] });
    const make = async (name: string, nodeLoss: NodeLoss, node: string) => {
      await pool.pool.cordonNode({ name: node === "node-a" ? "node-b" : "node-a", cordoned: true });
      await pool.claims.createClaim({
        claim: { name, memoryBytes: 2n * GiB, computePercent: 20, leaseSeconds: 3600, nodeLoss },
      });
      await pool.pool.cordonNode({ name: node === "node-a" ? "node-b" : "node-a", cordoned: false });
    };
    await make("moves", NodeLoss.REQUEUE, "node-a");
    await make("ends", NodeLoss.FAIL, "node-a");
    const { ticket } = await pool.claims.createTicket({ claim: "moves" });
    await pool.agent("node-a").openSession(ticket);
    const before = (await pool.claims.getClaim({ name: "moves" })).claim?.allocation;
    await pool.killAgent("node-a");
    await pool.passTime(29);
    expect((await pool.claims.getClaim({ name: "moves" })).claim?.allocation?.node).toBe("node-a");
    await pool.passTime(2);

    const moved = (await pool.claims.getClaim({ name: "moves" })).claim;
    expect(moved).toMatchObject({ state: ClaimState.BOUND, requeues: 1, allocation: { node: "node-b" } });
    expect(moved?.allocation?.epoch).toBeGreaterThan(before?.epoch ?? 0n);
    expect((await pool.claims.getClaim({ name: "ends" })).claim).toMatchObject({
      state: ClaimState.FAILED,
      reason: "its node node-a was lost: its agent has not reported for 30 s",
    });
    // It is unknown whether the session on the lost node still runs, so its allocation stays accounted for.
    const heldOn = async (node: string) =>
      (await pool.pool.listDevices({ node })).devices.map(({ allocatedMemoryBytes }) => allocatedMemoryBytes);
    expect(await heldOn("node-a")).toEqual([2n * GiB]);

    await pool.restart();
    await pool.addAgent("node-b", [4n * GiB]);
    const agent = await pool.addAgent("node-a", [4n * GiB]);
    await agent.settle();
    pool.clock.advance(1000);
    await agent.settle();
    expect(agent.desired?.allocations).toEqual([]);
    expect(await heldOn("node-a")).toEqual([0n]);
    expect((await pool.claims.getClaim({ name: "moves" })).claim?.allocation?.node).toBe("node-b");
  });

  test.each([-7200, 7200])("is lost after 30 s also where the clock is set by %i s", async (seconds) => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.addAgent("node-b", [4n * GiB]);
    const made = await pool.claims.createClaim({
      claim: { name: "a", leaseSeconds: 3600, nodeLoss: NodeLoss.REQUEUE },
    });
    const lost = made.claim?.allocation?.node ?? "";
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    await pool.agent(lost).openSession(ticket);
    await pool.killAgent(lost);
    await pool.passTime(5);
    pool.clock.set(seconds);
    await pool.passTime(20);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.allocation?.node).toBe(lost);
    await pool.passTime(10);
    const { allocation } = (await pool.claims.getClaim({ name: "a" })).claim ?? {};
    expect(allocation?.node).toMatch(lost === "node-a" ? "node-b" : "node-a");
  });

  test("a controller that starts does not take nodes for lost that have had no time to call", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 3600, nodeLoss: NodeLoss.FAIL } });
    await pool.claims.createTicket({ claim: "a" });
    await pool.restart();
    await pool.passTime(29);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.passTime(2);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.FAILED);
  });
});

describe("what operators say", () => {
  test("labels: theirs win over the agent's, and claims choose by them", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB], "node-b": [4n * GiB] });
    await pool.pool.labelNode({ name: "node-b", set: { pool: "training", zone: "2" } });
    const { claim } = await pool.claims.createClaim({
      claim: { memoryBytes: GiB, pool: "training", nodeLabels: { zone: "2" } },
    });
    expect(claim?.allocation?.node).toBe("node-b");
    const { node } = await pool.pool.labelNode({ name: "node-b", set: { zone: "3" }, remove: ["pool"] });
    expect(node?.labels).toEqual({ zone: "3" });
    await expect(pool.pool.labelNode({ name: "node-b", set: { "a b": "c" } })).rejects.toThrow(/not a label/);
    // Labels set by the agent and labels that do not exist cannot be removed.
    await expect(
      pool.pool.labelNode({ name: "node-b", set: { rack: "1" }, remove: ["typo"] }),
    ).rejects.toThrow(/node node-b has no label "typo".*NOT_FOUND/);
    expect((await pool.pool.getNode({ name: "node-b" })).node?.labels).toEqual({ zone: "3" });
    await expect(pool.pool.labelNode({ name: "nowhere", set: {} })).rejects.toThrow(/NOT_FOUND/);
    await expect(pool.claims.createClaim({ claim: { memoryBytes: GiB, pool: "training" } })).rejects.toThrow(
      /MILLPOND_E_IMPOSSIBLE/,
    );
  });

  test("a cordoned device takes no new claims, also after a restart and a report of its agent", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB, 4n * GiB] });
    await pool.pool.cordonNode({ name: "node-a", deviceUuid: "GPU-0", cordoned: true, reason: "fan" });
    await pool.restart();
    await pool.addAgent("node-a", [4n * GiB, 4n * GiB]);
    const { claim } = await pool.claims.createClaim({ claim: { gpus: 1 } });
    expect(claim?.allocation?.devices.map(({ uuid }) => uuid)).toEqual(["GPU-1"]);
    const second = await pool.claims.createClaim({ claim: { gpus: 1 } });
    expect(second.claim?.state).toBe(ClaimState.PENDING);
    await pool.pool.cordonNode({ name: "node-a", deviceUuid: "GPU-0", cordoned: false });
    expect((await pool.claims.getClaim({ name: second.claim?.name ?? "" })).claim?.state).toBe(
      ClaimState.BOUND,
    );
    await expect(
      pool.pool.cordonNode({ name: "node-a", deviceUuid: "GPU-7", cordoned: true }),
    ).rejects.toThrow(/node node-a has no device "GPU-7"/);
  });

  test("a node that is drained gives its claims notice, and they wait for room elsewhere", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    await pool.claims.createClaim({ claim: { name: "a", leaseSeconds: 3600, graceSeconds: 20 } });
    await pool.claims.createClaim({ claim: { name: "b", leaseSeconds: 3600 } });
    const { claims } = await pool.pool.drainNode({ name: "node-a", reason: "new fans" });
    expect(claims).toEqual(["a"]);
    const now = BigInt(Math.floor(pool.clock.unixMs() / 1000));
    expect((await pool.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.BOUND,
      reason: "node node-a is drained: new fans",
      preemptAt: now + 20n,
    });
    await pool.passTime(19);
    expect((await pool.claims.getClaim({ name: "a" })).claim?.state).toBe(ClaimState.BOUND);
    await pool.passTime(1);
    expect((await pool.claims.getClaim({ name: "a" })).claim).toMatchObject({
      state: ClaimState.PENDING,
      requeues: 1,
      reason: "no device of the pool takes claims now: 1 node cordoned",
    });
    // It has kept its place in the queue.
    await pool.pool.cordonNode({ name: "node-a", cordoned: false });
    const states = (await pool.claims.listClaims({})).claims.map(({ name, state }) => [name, state]);
    expect(states).toEqual([
      ["a", ClaimState.BOUND],
      ["b", ClaimState.PENDING],
    ]);
  });
});
