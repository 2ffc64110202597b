// SPDX-License-Identifier: Apache-2.0

import { generateKeyPairSync } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { maxSessionsPerDevice, SessionState, type SyncRequest } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { attach, firstDevice, NodeFixture, openSession, secondDevice, until } from "../../test/fixture.ts";
import { findProcessesByArgument, signalProcess } from "../process/process-identity.ts";

/** The device on which the session's worker made a context before it had the session. */
function warmDeviceOf(unixPath: string): string | undefined {
  const [worker] = findProcessesByArgument(unixPath);
  const args = readFileSync(`/proc/${worker?.pid}/cmdline`, "utf8").split("\0");
  return args[args.indexOf("--warm-device") + 1];
}

describe("opening a session", () => {
  test("gives the bearer of a ticket a worker, over either transport, and reports it", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice, secondDevice]);

    const ticket = node.controller.ticket("claim-1");
    const opened = await openSession(agent, ticket);
    expect(opened).toMatchObject({ tcpHost: "127.0.0.1", workerUser: process.geteuid?.() });
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

  test("ends with its client, leaves nothing behind, and its end is reported to the controller", async () => {
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

  test("waits for the end of another where its claim has all sessions that it may have", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent({ warm: 0 });
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const clients = await Promise.all(
      Array.from({ length: maxSessionsPerDevice }, async () => {
        const ticket = node.controller.ticket("claim-1");
        const { unixPath } = await openSession(agent, ticket);
        return await attach({ path: unixPath }, ticket);
      }),
    );
    const ticket = node.controller.ticket("claim-1");
    const attempts = [openSession(agent, ticket), openSession(agent, ticket)];
    // One of them finds the ticket used, after which the other waits.
    await expect(Promise.race(attempts)).rejects.toThrow("[MILLPOND_E_TICKET_USED]");
    clients[0]?.[Symbol.dispose]();
    const opened = await Promise.any(attempts);
    clients[0] = await attach({ path: opened.unixPath }, ticket);
    for (const client of clients) client[Symbol.dispose]();
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
    // The ticket is still valid.
    const late = await openSession(agent, node.controller.ticket("claim-1"));
    await node.controller.report(({ sessions }) => sessions.some(({ id }) => id === late.session));
    await node.controller.report(({ sessions }) => sessions.length === 0);
  });

  test("that came and went while the controller was away is reported until the controller has answered", async () => {
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

  test("ends when its client does not come, and the controller learns that none came", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent({ connectWithinSeconds: 1 });
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    const { session } = await openSession(agent, node.controller.ticket("claim-1"));
    const report = await node.controller.report(({ endedSessions }) => endedSessions.length === 1);
    expect(report.endedSessions).toMatchObject([{ id: session, hadClient: false }]);
  });

  test("keeps the configured number of warm workers while sessions take them", async () => {
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

describe("a claim's memory for contexts", () => {
  test("a session for which it does not suffice is refused as one too many, with the worker's numbers", async () => {
    await using node = await NodeFixture.create();
    node.setDriver({ refusal: "12 MiB of 64 MiB are left", isFull: true });
    const agent = await node.startKnownAgent();
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    await expect(openSession(agent, node.controller.ticket("claim-1"))).rejects.toThrow(
      /no memory for another session: 12 MiB of 64 MiB are left\. .*\[MILLPOND_E_TOO_MANY_SESSIONS\]$/,
    );
  });

  test("is its alone: workers are warm only where the rest of the device has room, and others make contexts when charged", async () => {
    await using node = await NodeFixture.create();
    const agent = await node.startKnownAgent({ warm: 1, sessionOverheadBytes: 2 ** 30 });
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    node.controller.resize("claim-1", 4 * 2 ** 30);
    const [first, second] = [node.controller.ticket("claim-1"), node.controller.ticket("claim-1")];
    const opened = await openSession(agent, first);
    using _one = await attach({ path: opened.unixPath }, first);
    await node.controller.report(({ sessions, warmWorkers }) => sessions.length === 1 && warmWorkers === 1);
    const later = await openSession(agent, second);
    expect(warmDeviceOf(later.unixPath)).toBe("");
  });

  test("makes the contexts of further sessions when it is charged for them, whatever room the device has", async () => {
    await using node = await NodeFixture.create();
    const contextBytes = 2 ** 28;
    node.setDriver({
      costs: [{ uuid: firstDevice, contextBytes, printsBytes: 0, allocatesBytes: 0 }],
    });
    const agent = await node.startKnownAgent({ warm: 1 });
    const { devices } = await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    // The driver measured this device; the other one could not be measured, and software GPUs take no other memory.
    expect(devices.map(({ overheadBytes }) => overheadBytes)).toEqual([BigInt(contextBytes), 0n]);
    node.controller.allocate("claim-1", "node-a", [firstDevice]);
    node.controller.allocate("claim-2", "node-a", [secondDevice]);
    const open = async (claim: string) => openSession(agent, node.controller.ticket(claim));
    const opened = await Promise.all(Array.from({ length: 4 }, () => open("claim-1")));
    const warm = opened.map(({ unixPath }) => warmDeviceOf(unixPath));
    expect(warm.filter((uuid) => uuid === firstDevice)).toHaveLength(1);
    expect(warm.filter((uuid) => uuid === "")).toHaveLength(3);
    const free = await Promise.all([open("claim-2"), open("claim-2")]);
    for (const { unixPath } of free) expect(warmDeviceOf(unixPath)).toBe(secondDevice);
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

describe("the sizes of sessions", () => {
  const limits = (report: SyncRequest) =>
    report.sessions.map(({ devices }) =>
      devices.map(({ memoryLimitBytes }) => Number(memoryLimitBytes) / MiB),
    );
  const MiB = 2 ** 20;

  test("follow what the controller wants, for older tickets too, and a worker's refusal is reported once", async () => {
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

  test("are sent to the workers that an earlier agent left", async () => {
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
