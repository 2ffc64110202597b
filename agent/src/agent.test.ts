// SPDX-License-Identifier: Apache-2.0

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DeviceHealth, SessionState, type SyncRequest } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { attach, firstDevice, NodeFixture, openSession, secondDevice, until } from "../test/fixture.ts";
import { bootId, findProcessesByArgument, signalProcess } from "./process/process-identity.ts";

test("workers meet at gates of this boot of the machine; those of others are gone", async () => {
  await using node = await NodeFixture.create();
  const gates = join(node.run, "gates");
  mkdirSync(join(gates, "another-boot"), { recursive: true });
  await node.startKnownAgent();
  await until(
    () => findProcessesByArgument(join(gates, bootId())).length > 0,
    "a worker is told of its gates",
  );
  expect(existsSync(join(gates, bootId()))).toBe(true);
  expect(existsSync(join(gates, "another-boot"))).toBe(false);
});

describe("opening a session", () => {
  test("gives the bearer of a ticket a worker, over either transport, and reports it", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice, secondDevice]);

    const ticket = node.controller.ticket("claim-1");
    const opened = await openSession(agent, ticket);
    expect(opened).toMatchObject({ tcpHost: "127.0.0.1" });
    expect(opened.unixPath.startsWith(node.run)).toBe(true);
    expect(opened.tcpPort).toBeGreaterThan(0);
    using _client = await attach({ path: opened.unixPath }, ticket);

    const overTcp = node.controller.ticket("claim-1");
    const second = await openSession(agent, overTcp, "tcp");
    expect(second.unixPath).toBe("");
    using _second = await attach({ host: second.tcpHost, port: second.tcpPort }, overTcp);

    const report = await node.controller.report(
      ({ sessions }) =>
        sessions.length === 2 &&
        sessions.every((session) => session.state === SessionState.CONNECTED && session.commands > 0n),
    );
    expect(report.sessions.find((session) => session.id === opened.session)).toMatchObject({
      claim: "claim-1",
      epoch: 1n,
      clientPid: process.pid,
      program: "test-program",
      transport: "shm",
      launches: 3n,
      devices: [
        { uuid: firstDevice, memoryUsedBytes: 1048576n },
        { uuid: secondDevice, memoryUsedBytes: 1048576n },
      ],
    });
  });

  test("ends with its client, leaves nothing behind, and the controller hears of it", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const { unixPath, session } = await openSession(agent, ticket);
    const client = await attach({ path: unixPath }, ticket);
    await node.controller.report(({ sessions }) => sessions.some(({ id }) => id === session));
    client[Symbol.dispose]();
    await node.controller.report(({ sessions, warmWorkers }) => sessions.length === 0 && warmWorkers === 2);
    await until(() => node.workerIds().length === 2, "only the two warm workers have directories");
    expect(existsSync(unixPath)).toBe(false);
  });

  test("ends when its node is removed from the pool, and so do later ones", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const { unixPath, session } = await openSession(agent, ticket);
    using _client = await attach({ path: unixPath }, ticket);
    await node.controller.report(({ sessions }) => sessions.some(({ id }) => id === session));
    node.controller.hasRemovedNodes = true;
    await node.controller.report(({ sessions }) => sessions.length === 0);
    // With a ticket that is still good.
    const late = await openSession(agent, node.controller.ticket("claim-1"));
    await node.controller.report(({ sessions }) => sessions.some(({ id }) => id === late.session));
    await node.controller.report(({ sessions }) => sessions.length === 0);
  });

  test("that came and went while the controller was away is told until it has been answered", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    await node.controller.goAway();
    const { unixPath, session } = await openSession(agent, ticket);
    const client = await attach({ path: unixPath }, ticket);
    client[Symbol.dispose]();
    await until(() => node.workerIds().length === 2, "only the two warm workers have directories");
    node.controller.reports.length = 0;
    await node.controller.listen();
    const report = await node.controller.report(() => true);
    expect(report.sessions).toEqual([]);
    expect(report.endedSessions).toMatchObject([
      { id: session, claim: "claim-1", epoch: 1n, hadClient: true },
    ]);
    await node.controller.report(({ endedSessions }) => endedSessions.length === 0);
  });

  test("ends when its client does not come, and the controller hears that none came", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent({ connectWithinSeconds: 1 });
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const { session } = await openSession(agent, node.controller.ticket("claim-1"));
    const report = await node.controller.report(({ endedSessions }) => endedSessions.length === 1);
    expect(report.endedSessions).toMatchObject([{ id: session, hadClient: false }]);
  });

  test("keeps as many warm workers as it was told, whoever takes one", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startAgent({ warm: 2 });
    await node.controller.report(({ warmWorkers }) => warmWorkers === 4);
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    await Promise.all(Array.from({ length: 3 }, () => openSession(agent, node.controller.ticket("claim-1"))));
    await node.controller.report(({ warmWorkers, sessions }) => warmWorkers === 4 && sessions.length === 3);
    expect(node.workerProcesses()).toHaveLength(7);
  });

  test("ends the warm workers that an earlier agent left beyond that", async () => {
    await using node = await NodeFixture.create();
    const first = await node.startAgent({ warm: 3 });
    await node.controller.report(({ warmWorkers }) => warmWorkers === 6);
    await first.stop();
    const second = await node.startAgent({ warm: 1 });
    await node.controller.report(({ agentUrl, warmWorkers }) => agentUrl === second.url && warmWorkers === 2);
    await until(() => node.workerIds().length === 2, "only the two warm workers have directories");
    expect(node.workerProcesses()).toHaveLength(2);
  });

  test("starts a worker where none is kept warm", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent({ warm: 0 });
    expect(node.workerProcesses()).toEqual([]);
    node.controller.allocate("claim-1", "node-a", [secondDevice]);
    await openSession(agent, node.controller.ticket("claim-1"));
    expect(node.workerProcesses()).toHaveLength(1);
  });

  test("says why when the worker refuses or cannot start", async () => {
    await using node = await NodeFixture.create();
    node.setDriver({ refusal: "the device has only 3 MiB left" });
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    await expect(openSession(agent, node.controller.ticket("claim-1"))).rejects.toThrow(
      /claim claim-1 got no worker: the device has only 3 MiB left\. .*\[MILLPOND_E_NO_WORKER\]$/,
    );
    node.controller.allocate("claim-2", "node-a", [secondDevice]);
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    for (const worker of node.workerProcesses()) signalProcess(worker, "SIGKILL");
    node.setDriver({ startFailure: "cuInit failed: 999" });
    await until(() => node.workerProcesses().length === 0, "the warm workers are gone");
    await expect(openSession(agent, node.controller.ticket("claim-2"))).rejects.toThrow(/cuInit failed: 999/);
    node.setDriver({});
    await openSession(agent, node.controller.ticket("claim-2"));
  });
});

describe("tickets", () => {
  test("refused: signature, time, node, use, epoch, devices, transport", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const now = Math.floor(Date.now() / 1000);
    const refusals: [string, string][] = [
      ["garbage", "MILLPOND_E_TICKET_INVALID"],
      [
        node.controller.ticket("claim-1", { key: generateKeyPairSync("ed25519").privateKey }),
        "MILLPOND_E_TICKET_INVALID",
      ],
      [
        node.controller.ticket("claim-1", { issued: now - 120, expires: now - 60 }),
        "MILLPOND_E_TICKET_EXPIRED",
      ],
      [
        node.controller.ticket("claim-1", { issued: now + 60, expires: now + 120 }),
        "MILLPOND_E_TICKET_NOT_YET_VALID",
      ],
      [node.controller.ticket("claim-1", { node: "node-b" }), "MILLPOND_E_TICKET_WRONG_NODE"],
      [
        node.controller.ticket("claim-1", {
          devices: [{ uuid: "GPU-elsewhere", memoryBytes: 2 ** 20, computePercent: 1 }],
        }),
        "MILLPOND_E_DEVICE_UNHEALTHY",
      ],
    ];
    for (const [ticket, code] of refusals) {
      await expect(openSession(agent, ticket)).rejects.toThrow(`[${code}]`);
    }
    await expect(openSession(agent, node.controller.ticket("claim-1"), "pigeon")).rejects.toThrow(
      "[MILLPOND_E_INVALID]",
    );

    const good = node.controller.ticket("claim-1");
    await openSession(agent, good);
    await expect(openSession(agent, good)).rejects.toThrow("[MILLPOND_E_TICKET_USED]");

    const old = node.controller.ticket("claim-1");
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    await openSession(agent, node.controller.ticket("claim-1"));
    await expect(openSession(agent, old)).rejects.toThrow("[MILLPOND_E_TICKET_STALE]");
  });

  test("stay used after the agent was replaced", async () => {
    await using node = await NodeFixture.create();
    const first = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    await openSession(first, ticket);
    await first.stop();
    const second = await node.startKnownAgent();
    await expect(openSession(second, ticket)).rejects.toThrow("[MILLPOND_E_TICKET_USED]");
  });

  test("of an allocation that was taken away do not work any more", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const revision = (await node.controller.report(({ knownRevision }) => knownRevision === 2n))
      .knownRevision;
    node.controller.withdraw("claim-1");
    await node.controller.report(({ knownRevision }) => knownRevision > revision);
    await expect(openSession(agent, ticket)).rejects.toThrow("[MILLPOND_E_TICKET_STALE]");
  });

  test("are not accepted before the controller's key is known", async () => {
    await using node = await NodeFixture.create();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    await node.controller.goAway();
    const agent = await node.startAgent();
    await expect(openSession(agent, ticket)).rejects.toThrow("[MILLPOND_E_NODE_NOT_READY]");
  });
});

describe("the controller's wishes", () => {
  test("a session whose allocation is taken away is closed, a stubborn worker killed, others go on", async () => {
    await using node = await NodeFixture.create();
    node.setDriver({ isStubborn: true });
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    node.controller.allocate("claim-2", "node-a", [firstDevice]);
    const doomed = node.controller.ticket("claim-1");
    const kept = node.controller.ticket("claim-2");
    const first = await openSession(agent, doomed);
    const second = await openSession(agent, kept);
    using client = await attach({ path: first.unixPath }, doomed);
    using survivor = await attach({ path: second.unixPath }, kept);
    node.controller.withdraw("claim-1");
    await client.closed;
    const report = await node.controller.report(({ sessions }) => sessions.length === 1);
    expect(report.sessions[0]?.id).toBe(second.session);
    expect(survivor.isConnected).toBe(true);
    node.setDriver({});
  });

  test("sessions go on and open while the controller is away, and are reported when it is back", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const tickets = [node.controller.ticket("claim-1"), node.controller.ticket("claim-1")] as const;
    await node.controller.report(({ knownRevision }) => knownRevision === 2n);
    const first = await openSession(agent, tickets[0]);
    using client = await attach({ path: first.unixPath }, tickets[0]);
    await node.controller.goAway();
    const second = await openSession(agent, tickets[1]);
    using _other = await attach({ path: second.unixPath }, tickets[1]);
    node.controller.reports.length = 0;
    await node.controller.listen();
    await node.controller.report(({ sessions }) => sessions.length === 2);
    expect(client.isConnected).toBe(true);
  });
});

describe("workers that die", () => {
  test("end their session, are reported and replaced", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const opened = await openSession(agent, ticket);
    using _client = await attach({ path: opened.unixPath }, ticket);
    await node.controller.report(
      ({ sessions, warmWorkers }) => sessions[0]?.state === SessionState.CONNECTED && warmWorkers === 2,
    );
    for (const worker of node.workerProcesses()) signalProcess(worker, "SIGKILL");
    await node.controller.report(({ sessions }) => sessions.length === 0);
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    await until(() => node.workerIds().length === 2, "the dead workers' directories are gone");
  });

  test("while they wait are replaced, and their device stays healthy", async () => {
    await using node = await NodeFixture.create();
    await node.startKnownAgent();
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    node.controller.reports.length = 0;
    for (const worker of node.workerProcesses()) signalProcess(worker, "SIGKILL");
    await node.controller.report(({ warmWorkers }) => warmWorkers === 0);
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    const reasons = node.controller.reports.flatMap(({ devices }) =>
      devices.map((device) => device.healthReason),
    );
    expect(new Set(reasons)).toEqual(new Set([""]));
  });

  test("at start are retried with growing pauses, make their device unhealthy, and it recovers", async () => {
    await using node = await NodeFixture.create();
    node.setDriver({ startFailure: "the device fell off the bus" });
    await node.startAgent({ restartFirstMs: 100, restartCeilingMs: 200 });
    const ill = await node.controller.report(({ devices }) =>
      devices.every(({ healthReason }) => healthReason !== ""),
    );
    expect(ill.devices[0]?.healthReason).toMatch(/the device fell off the bus/);
    node.setDriver({});
    const well = await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    expect(well.devices.map(({ healthReason }) => healthReason)).toEqual(["", ""]);
  });
});

describe("a device that must not be used any more", () => {
  const ill = [{ uuid: firstDevice, reason: "the driver has reported Xid 79" }];

  test("is told, keeps no workers and gets no session, while others go on; and it recovers", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    node.controller.allocate("claim-2", "node-a", [secondDevice]);
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    node.setDriver({ ill });
    const told = await node.controller.report(
      ({ devices, warmWorkers }) => devices[0]?.healthReason !== "" && warmWorkers === 1,
    );
    expect(told.devices.map(({ health, healthReason }) => [health, healthReason])).toEqual([
      [DeviceHealth.UNHEALTHY, "the driver has reported Xid 79"],
      [DeviceHealth.HEALTHY, ""],
    ]);
    await expect(openSession(agent, node.controller.ticket("claim-1"))).rejects.toThrow(
      /device node-a\/0 is unhealthy: the driver has reported Xid 79\..*\[MILLPOND_E_DEVICE_UNHEALTHY\]$/,
    );
    const ticket = node.controller.ticket("claim-2");
    const { unixPath } = await openSession(agent, ticket);
    using client = await attach({ path: unixPath }, ticket);
    node.setDriver({});
    const well = await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    expect(well.devices.map(({ healthReason }) => healthReason)).toEqual(["", ""]);
    expect(client.isConnected).toBe(true);
  });

  test("is ill after a report of its driver until somebody says that it is well, in view of the last one", async () => {
    await using node = await NodeFixture.create();
    await node.startKnownAgent();
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    const report = (...xids: readonly number[]) =>
      node.setDriver({
        faults: xids.map((xid) => ({ uuid: firstDevice, reason: `the driver has reported Xid ${xid}` })),
      });
    const isFault = (fault: bigint) => (told: SyncRequest) => told.devices[0]?.fault === fault;
    report(79, 48);
    const told = await node.controller.report(isFault(2n));
    expect(told.devices.map(({ healthReason, fault }) => [healthReason, fault])).toEqual([
      ["the driver has reported Xid 79", 2n],
      ["", 0n],
    ]);
    // What was reported stays, though it is not told again.
    node.setDriver({});
    await node.controller.report(({ warmWorkers }) => warmWorkers === 1);
    report(79);
    await node.controller.report(isFault(3n));
    node.controller.clearedFaults = [{ uuid: firstDevice, fault: 2n }];
    node.controller.allocate("claim-1", "node-a", [secondDevice]);
    const answered = node.controller.reports.length + 2;
    await node.controller.report(() => node.controller.reports.length > answered);
    expect(node.controller.reports.at(-1)?.devices[0]?.health).toBe(DeviceHealth.UNHEALTHY);
    node.controller.clearedFaults = [{ uuid: firstDevice, fault: 3n }];
    const well = await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    expect(well.devices.map(({ health, fault }) => [health, fault])).toEqual([
      [DeviceHealth.HEALTHY, 0n],
      [DeviceHealth.HEALTHY, 0n],
    ]);
  });

  test.each([
    ["says nothing", { isSilent: true }, /^its driver has said nothing for 0\.3 s$/],
    ["says something else", { nonsense: "{}" }, /^its driver cannot be asked: it said something else than/],
  ])("is every one of a driver that %s, until it speaks again", async (_what, change, reason) => {
    await using node = await NodeFixture.create();
    await node.startKnownAgent({ driverSilenceMs: 300 });
    node.setDriver(change);
    const told = await node.controller.report(({ devices }) =>
      devices.every(({ healthReason }) => reason.test(healthReason)),
    );
    expect(told.devices.map(({ health }) => health)).toEqual([
      DeviceHealth.UNHEALTHY,
      DeviceHealth.UNHEALTHY,
    ]);
    node.setDriver({});
    await node.controller.report(({ devices }) => devices.every(({ healthReason }) => healthReason === ""));
  });
});

describe("an agent that stops", () => {
  test("leaves its workers to the next, which ends none that serves a session", async () => {
    await using node = await NodeFixture.create();
    const first = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const { unixPath } = await openSession(first, ticket);
    using client = await attach({ path: unixPath }, ticket);
    await node.controller.report(
      ({ sessions, warmWorkers }) => sessions[0]?.state === SessionState.CONNECTED && warmWorkers === 2,
    );
    const before = node.workerProcesses();
    await first.stop();
    expect(node.workerProcesses()).toEqual(before);

    const second = await node.startAgent();
    const report = await node.controller.report(
      ({ agentUrl, warmWorkers }) => agentUrl === second.url && warmWorkers === 2,
    );
    expect(report.sessions).toMatchObject([
      { claim: "claim-1", state: SessionState.CONNECTED, clientPid: process.pid, program: "test-program" },
    ]);
    expect(node.workerProcesses()).toEqual(before);
    client[Symbol.dispose]();
    await node.controller.report(({ sessions }) => sessions.length === 0);
  });

  test("leaves it to the next to tell which sessions ended without an agent", async () => {
    await using node = await NodeFixture.create();
    const first = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const { unixPath, session } = await openSession(first, ticket);
    const client = await attach({ path: unixPath }, ticket);
    await node.controller.report(({ sessions }) => sessions[0]?.state === SessionState.CONNECTED);
    await first.stop({ drain: "idle" });
    client[Symbol.dispose]();
    await until(() => node.workerProcesses().length === 0, "the worker has ended with its client");
    const second = await node.startAgent();
    const report = await node.controller.report(({ agentUrl }) => agentUrl === second.url);
    expect(report.endedSessions).toMatchObject([{ id: session, claim: "claim-1", hadClient: true }]);
  });

  test("ends what it is told to: idle workers, or everything", async () => {
    await using node = await NodeFixture.create();
    const first = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    await openSession(first, node.controller.ticket("claim-1"));
    await first.stop({ drain: "idle" });
    expect(node.workerProcesses()).toHaveLength(1);
    const second = await node.startAgent();
    await second.stop({ drain: "all" });
    expect(node.workerProcesses()).toEqual([]);
    expect(node.workerIds()).toEqual([]);
  });

  test("is replaced on a run directory with leftovers of dead workers", async () => {
    await using node = await NodeFixture.create();
    const left = join(node.run, "workers", "w-0badcafe");
    mkdirSync(left, { recursive: true });
    writeFileSync(join(left, "control.sock"), "");
    // The process id is that of a live process that is not the worker: it started at another time.
    writeFileSync(
      join(left, "worker.json"),
      JSON.stringify({
        process: { pid: process.pid, startTime: "1", bootId: "another boot" },
        driver: node.driver,
        warmDevice: firstDevice,
        startedAt: 1,
        session: null,
        client: null,
      }),
    );
    await node.startKnownAgent();
    expect(existsSync(left)).toBe(false);
  });
});

test("workers that wait where the node listened before are replaced", async () => {
  await using node = await NodeFixture.create();
  const first = await node.startKnownAgent({ warm: 1 });
  await first.stop();
  const second = await node.startKnownAgent({ listen: "127.0.0.2:0" });
  node.controller.allocate("claim-1", "node-a", [firstDevice]);
  const ticket = node.controller.ticket("claim-1");
  const opened = await openSession(second, ticket, "tcp");
  expect(opened.tcpHost).toBe("127.0.0.2");
  using _client = await attach({ host: opened.tcpHost, port: opened.tcpPort }, ticket);
});

describe("an agent that encrypts", () => {
  test("is known by its certificate, and gives each session a secret of its own", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent({ encrypt: true, advertise: "localhost" });
    node.controller.allocate("claim-1", "node-a", [firstDevice, secondDevice]);
    expect(agent.url).toMatch(/^https:\/\/localhost:\d+#sha256=[0-9a-f]{64}$/);
    const opened = [
      await openSession(agent, node.controller.ticket("claim-1")),
      await openSession(agent, node.controller.ticket("claim-1"), "tcp"),
    ];
    for (const { tcpHost, linkSecret } of opened) {
      expect(tcpHost).toBe("localhost");
      expect(linkSecret).toMatch(/^[0-9a-f]{64}$/);
    }
    expect(opened[0]?.linkSecret).not.toBe(opened[1]?.linkSecret);
  });

  test("gets no ticket from whoever expects another one, or speaks in clear", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent({ encrypt: true });
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const another = agent.url.replace(/.$/, (digit) => (digit === "0" ? "1" : "0"));
    await expect(openSession({ url: another }, ticket)).rejects.toThrow(
      /is not trusted: its certificate is not the one .*\[MILLPOND_E_TLS\]$/,
    );
    const clear = agent.url.replace("https:", "http:").replace(/#.*/, "");
    await expect(openSession({ url: clear }, ticket)).rejects.toThrow(/socket hang up|ECONNRESET|closed/);
    expect((await openSession(agent, ticket)).linkSecret).not.toBe("");
  });
});

describe("starting an agent", () => {
  test("is refused on a run directory that another agent uses", async () => {
    await using node = await NodeFixture.create();
    await node.startAgent();
    await expect(node.startAgent()).rejects.toThrow(/another agent uses .*\[MILLPOND_E_STATE_LOCKED\]$/);
  });

  test("is refused at no address, with a bad name, and without a driver that works", async () => {
    await using node = await NodeFixture.create();
    await expect(node.startAgent({ listen: "example.org:0" })).rejects.toThrow("[MILLPOND_E_INVALID]");
    await expect(node.startAgent({ advertise: "a b" })).rejects.toThrow("[MILLPOND_E_INVALID]");
    await expect(node.startAgent({ name: "Node A" })).rejects.toThrow("[MILLPOND_E_INVALID]");
    await expect(node.startAgent({ run: `/tmp/${"x".repeat(100)}` })).rejects.toThrow("[MILLPOND_E_INVALID]");
    node.setDriver({ probeFailure: "no NVIDIA driver: libcuda.so.1 cannot be opened" });
    await expect(node.startAgent()).rejects.toThrow(
      /libcuda\.so\.1 cannot be opened\. .*\[MILLPOND_E_DRIVER\]$/,
    );
    node.setDriver({ devices: [] });
    await expect(node.startAgent()).rejects.toThrow(/found no device\. .*\[MILLPOND_E_DRIVER\]$/);
    await expect(node.startAgent({ worker: join(node.directory, "absent") })).rejects.toThrow(
      /cannot start the worker program/,
    );
  });

  test("with a token that the controller does not know goes on trying", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startAgent({ token: "wrong" });
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    await expect(
      openSession(agent, node.controller.ticket("claim-1", { session: randomUUID() })),
    ).rejects.toThrow("[MILLPOND_E_NODE_NOT_READY]");
  });
});

describe("the sizes of sessions", () => {
  const limits = (report: SyncRequest) =>
    report.sessions.map(({ devices }) =>
      devices.map(({ memoryLimitBytes }) => Number(memoryLimitBytes) / MiB),
    );
  const MiB = 2 ** 20;

  test("follow what the controller wants, for older tickets too, and a worker's refusal is told once", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const old = node.controller.ticket("claim-1");
    const { unixPath } = await openSession(agent, ticket);
    using _client = await attach({ path: unixPath }, ticket);
    await node.controller.report((report) => limits(report)[0]?.[0] === 512);

    node.controller.resize("claim-1", 64 * MiB);
    await node.controller.report((report) => limits(report)[0]?.[0] === 64);
    await openSession(agent, old);
    const both = await node.controller.report(({ sessions }) => sessions.length === 2);
    expect(limits(both)).toEqual([[64], [64]]);

    node.controller.resize("claim-1", MiB / 2);
    const refused = await node.controller.report(({ sessions }) =>
      sessions.every(({ sizeRefusal }) => sizeRefusal !== ""),
    );
    expect(refused.sessions[0]?.sizeRefusal).toBe("1048576 bytes are in use");
    expect(limits(refused)).toEqual([[64], [64]]);
    node.controller.resize("claim-1", 128 * MiB);
    const grown = await node.controller.report((report) => limits(report).every(([limit]) => limit === 128));
    expect(grown.sessions.map(({ sizeRefusal }) => sizeRefusal)).toEqual(["", ""]);
  });

  test("are told to the workers that an earlier agent left", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const { unixPath } = await openSession(agent, ticket);
    using client = await attach({ path: unixPath }, ticket);
    await node.controller.report((report) => limits(report)[0]?.[0] === 512);
    await agent.stop();
    node.controller.resize("claim-1", 64 * MiB);
    node.controller.reports.length = 0;
    await node.startAgent();
    await node.controller.report((report) => limits(report)[0]?.[0] === 64);
    await node.controller.report((report) => report.sessions[0]?.sizeRevision !== 0n);
    expect(client.isConnected).toBe(true);
  });
});

test("an agent that is reloaded has other labels, and its sessions go on", async () => {
  await using node = await NodeFixture.create();
  const agent = await node.startKnownAgent({ labels: { zone: "a" } });
  node.controller.allocate("claim-1", "node-a", [firstDevice]);
  const ticket = node.controller.ticket("claim-1");
  const { unixPath, session } = await openSession(agent, ticket);
  using _client = await attach({ path: unixPath }, ticket);
  expect(() => agent.reload({ labels: { "": "b" } })).toThrow("MILLPOND_E_INVALID");
  agent.reload({ labels: { zone: "b" } });
  const report = await node.controller.report(({ labels }) => labels["zone"] === "b");
  // With what a controller needs that does not know the session, as its state was restored.
  expect(report.sessions).toMatchObject([{ id: session, ticket }]);
});

test("an agent that is stopped says so with its last report", async () => {
  await using node = await NodeFixture.create();
  const agent = await node.startKnownAgent();
  expect((await node.controller.report(() => true)).leaving).toBe(false);
  await agent.stop({ drain: "all" });
  expect(node.controller.reports.at(-1)).toMatchObject({ node: "node-a", leaving: true });
});
