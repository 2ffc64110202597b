// SPDX-License-Identifier: Apache-2.0

// What an attacker with an agent's token cannot do to other nodes.

import { createClient } from "@connectrpc/connect";
import { AccessService, AgentService, errorCodeOf } from "@millpond/api";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startController } from "../controller.ts";
import { fakeDevice } from "../testing/fake-agent.ts";
import { GiB, makeTestDirectory, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

const fingerprint = "ab".repeat(32);

async function start() {
  const pool = await TestPool.start();
  const access = createClient(AccessService, makeTransport(pool.controller.url, pool.controller.userToken));
  const makeToken = async (name: string, node = "") =>
    (await access.createToken({ name, role: "agent", node })).secret;
  /** The first call of an agent. */
  const report = async (token: string, node: string, agentUrl = "http://127.0.0.1:7171") =>
    await createClient(AgentService, makeTransport(pool.controller.url, token))
      .sync({
        node,
        run: `run-of-${node}`,
        sequence: 1n,
        agentUrl,
        devices: [fakeDevice(0, 64n * GiB)],
      })
      .then(
        () => "taken over",
        (error: unknown) => errorCodeOf(error) ?? String(error),
      );
  return { pool, access, makeToken, report };
}

test("a token that was made for a node reports no other", async () => {
  const { makeToken, report } = await start();
  const token = await makeToken("own", "node-a");
  expect(await report(token, "evil-node")).toBe("MILLPOND_E_FORBIDDEN");
  expect(await report(token, "node-a")).toBe("taken over");
});

test("a token that was made for no node in particular is for the first that joins with it, also after a restart", async () => {
  const { pool, access, makeToken, report } = await start();
  const token = await makeToken("own");
  expect(await report(token, "node-a")).toBe("taken over");
  expect(await report(token, "evil-node")).toBe("MILLPOND_E_FORBIDDEN");
  expect((await access.listTokens({})).tokens).toMatchObject([{ name: "own", node: "node-a" }]);
  await pool.restart();
  const again = await createClient(AgentService, makeTransport(pool.controller.url, token))
    .sync({ node: "evil-node", run: "x", sequence: 1n, agentUrl: "http://127.0.0.1:1", devices: [] })
    .then(String, errorCodeOf);
  expect(again).toBe("MILLPOND_E_FORBIDDEN");
});

test("two agents that join at the same moment with one token: one of them does", async () => {
  const { pool, makeToken, report } = await start();
  const token = await makeToken("own");
  const outcomes = await Promise.all(["node-a", "node-b", "node-c"].map((node) => report(token, node)));
  expect(outcomes.toSorted()).toEqual(["MILLPOND_E_FORBIDDEN", "MILLPOND_E_FORBIDDEN", "taken over"]);
  expect((await pool.pool.listNodes({})).nodes).toHaveLength(1);
});

test("a node that has a token of its own is spoken for by no other token, the shared one included", async () => {
  const { pool, makeToken, report } = await start();
  await report(await makeToken("own"), "node-a");
  pool.clock.advance(60_000);
  const other = await makeToken("other");
  const attack = async (token: string) =>
    await createClient(AgentService, makeTransport(pool.controller.url, token))
      .sync({
        node: "node-a",
        run: "another",
        sequence: 1n,
        agentUrl: "http://10.6.6.6:1",
        devices: [fakeDevice(0, 64n * GiB)],
      })
      .then(() => "taken over", errorCodeOf);
  expect(await attack(other)).not.toBe("taken over");
  expect(await attack(pool.controller.agentToken)).not.toBe("taken over");
  expect((await pool.pool.listNodes({})).nodes).toMatchObject([{ agentUrl: "http://127.0.0.1:7171" }]);
});

test("the token of a node that was removed lets no agent join, under whatever name", async () => {
  const { pool, makeToken, report } = await start();
  const token = await makeToken("own");
  await report(token, "evil-node");
  pool.clock.advance(31_000);
  await pool.pool.removeNode({ name: "evil-node", lost: true });
  expect(await report(token, "evil-node")).toBe("MILLPOND_E_NODE_REMOVED");
  expect(await report(token, "evil-node-3")).toBe("MILLPOND_E_FORBIDDEN");
});

test("a node that was removed joins again with a new token, and not with one that another node has", async () => {
  const { pool, makeToken, report } = await start();
  await report(await makeToken("own"), "node-a");
  const others = await makeToken("others");
  await report(others, "node-b");
  pool.clock.advance(31_000);
  await pool.pool.removeNode({ name: "node-a", lost: true });
  expect(await report(others, "node-a")).toBe("MILLPOND_E_FORBIDDEN");
  expect(await report(await makeToken("again"), "node-a")).toBe("taken over");
});

test.each([
  "http://10.0.0.1:80",
  "http://169.254.169.254/latest",
  "http://metadata.internal",
  "http://127.0.0.1.evil.example:7171",
  "http://[::ffff:10.0.0.1]:7171",
  "https://10.0.0.1:7171",
])("an agent at %s, which nothing proves, is not where programs are sent", async (url) => {
  const { makeToken, report } = await start();
  expect(await report(await makeToken("own"), "node-a", url)).toBe("MILLPOND_E_INVALID");
});

test.each([
  "http://127.0.0.1:7171",
  "http://127.8.9.10:7171",
  "http://[::1]:7171",
  "http://localhost:7171",
  `https://gpu-7.example.org:7171#sha256=${fingerprint}`,
])("an agent at %s is where programs are sent", async (url) => {
  const { makeToken, report } = await start();
  expect(await report(await makeToken("own"), "node-a", url)).toBe("taken over");
});

test("the audit says which token a node joined with, and when its address or its devices change", async () => {
  const { pool, access, makeToken } = await start();
  const agent = createClient(AgentService, makeTransport(pool.controller.url, await makeToken("own")));
  const call = (sequence: bigint, agentUrl: string, devices: number) =>
    agent.sync({
      node: "node-a",
      run: "run",
      sequence,
      agentUrl,
      devices: Array.from({ length: devices }, (_, index) => fakeDevice(index, GiB)),
    });
  const moved = `https://10.0.0.7:7171#sha256=${fingerprint}`;
  await call(1n, "http://127.0.0.1:7171", 1);
  await call(2n, moved, 1);
  await call(3n, moved, 2);
  const { records } = await access.listAudit({});
  expect(records.filter(({ role }) => role === "agent")).toMatchObject([
    { who: "own", subject: "node/node-a", why: "joins at http://127.0.0.1:7171 with GPU-0", result: "ok" },
    { who: "own", subject: "node/node-a", why: `is at ${moved} with GPU-0` },
    { who: "own", subject: "node/node-a", why: `is at ${moved} with GPU-0, GPU-1` },
  ]);
});

test("a controller that takes no shared agent token takes agents with tokens of their nodes only", async () => {
  const controller = await startController({
    stateDirectory: makeTestDirectory(),
    listen: "127.0.0.1:0",
    log: pino({ level: "silent" }),
    takesSharedAgentTokens: false,
  });
  onTestFinished(() => controller[Symbol.asyncDispose]());
  const access = createClient(AccessService, makeTransport(controller.url, controller.userToken));
  const { secret } = await access.createToken({ name: "own", role: "agent", node: "node-a" });
  const join = async (token: string) =>
    await createClient(AgentService, makeTransport(controller.url, token))
      .sync({
        node: "node-a",
        run: "r",
        sequence: 1n,
        agentUrl: "http://127.0.0.1:7171",
        devices: [fakeDevice(0, GiB)],
      })
      .then(() => "joined", errorCodeOf);
  expect(await join(controller.agentToken)).toBe("MILLPOND_E_UNAUTHENTICATED");
  expect(await join(secret)).toBe("joined");
});
