// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { SessionState } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { attach, firstDevice, NodeFixture, openSession, secondDevice, until } from "../test/fixture.ts";
import { bootId, findProcessesByArgument } from "./process/process-identity.ts";

test("workers meet at gates of this boot of the machine; those of others are gone", async () => {
  await using node = await NodeFixture.create();
  const gates = join(node.run, "gates");
  mkdirSync(join(gates, "another-boot"), { recursive: true });
  await node.startKnownAgent();
  await until(
    () => findProcessesByArgument(join(gates, `${bootId()}-4`)).length > 0,
    "a worker that has the gates in its arguments",
  );
  expect(existsSync(join(gates, `${bootId()}-4`))).toBe(true);
  expect(existsSync(join(gates, "another-boot"))).toBe(false);
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

  test("ends what its drain option names: idle workers, or everything", async () => {
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

/** The first of two free ports below the ephemeral ones, where other tests have theirs. */
async function twoFreePorts(): Promise<number> {
  for (let first = 20_000 + (process.pid % 5000) * 2; ; first += 2) {
    const servers = [createServer(), createServer()];
    const listening = servers.map(async (server, index) => {
      server.listen(first + index, "127.0.0.1");
      await once(server, "listening");
    });
    const outcomes = await Promise.allSettled(listening);
    for (const server of servers) server.close();
    if (outcomes.every(({ status }) => status === "fulfilled")) return first;
  }
}

test("workers have the ports that they are given, and no session is opened beyond them", async () => {
  const first = await twoFreePorts();
  await using node = await NodeFixture.create();
  const before = await node.startKnownAgent({ warm: 1 });
  await before.stop();
  const agent = await node.startKnownAgent({ warm: 0, workerPorts: `${first}-${first + 1}` });
  node.controller.allocate("claim-1", "node-a", [firstDevice]);
  const open = async () => {
    const ticket = node.controller.ticket("claim-1");
    const opened = await openSession(agent, ticket, "tcp");
    return { opened, client: await attach({ host: opened.tcpHost, port: opened.tcpPort }, ticket) };
  };
  const [one, two] = [await open(), await open()];
  using _one = one.client;
  using _two = two.client;
  expect(new Set([one.opened.tcpPort, two.opened.tcpPort])).toEqual(new Set([first, first + 1]));
  await expect(open()).rejects.toThrow(/have all TCP ports from.*\[MILLPOND_E_NO_WORKER\]$/);
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

  test("gets no ticket from a client that expects another certificate, or does not encrypt", async () => {
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
  // The ticket lets a controller whose state was restored adopt a session that it does not know.
  expect(report.sessions).toMatchObject([{ id: session, ticket }]);
});

test("an agent that is stopped says so with its last report", async () => {
  await using node = await NodeFixture.create();
  const agent = await node.startKnownAgent();
  expect((await node.controller.report(() => true)).leaving).toBe(false);
  await agent.stop({ drain: "all" });
  expect(node.controller.reports.at(-1)).toMatchObject({ node: "node-a", leaving: true });
});
