// SPDX-License-Identifier: Apache-2.0

import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimState, NodeLoss, QueueService } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

describe("a node that is removed", () => {
  const accessOf = (pool: TestPool) =>
    createClient(AccessService, makeTransport(pool.controller.url, pool.controller.userToken));
  const makeToken = async (pool: TestPool, name: string) =>
    (await accessOf(pool).createToken({ name, role: "agent" })).secret;
  const nodesOf = async (pool: TestPool) => (await pool.pool.listNodes({})).nodes.map(({ name }) => name);
  const stateOf = async (pool: TestPool, name: string) => (await pool.claims.getClaim({ name })).claim;
  const refused =
    /node node-a was removed from the pool at 20\d\d-.*Z, and the token .*\[MILLPOND_E_NODE_REMOVED\]$/;

  test("is in no list any more, joins again with a new token only, and what it was stays told", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB], "node-b": [4n * GiB] });
    const old = await makeToken(pool, "old");
    await pool.claims.createClaim({ claim: { name: "was", leaseSeconds: 3600 } });
    const queues = createClient(QueueService, makeTransport(pool.controller.url, pool.controller.userToken));
    const where = (await stateOf(pool, "was"))?.allocation?.node ?? "";
    expect(where).toBe("node-a");
    await pool.passTime(60);
    await pool.claims.releaseClaim({ name: "was" });
    await pool.killAgent("node-a");
    await pool.passTime(3);
    await pool.pool.removeNode({ name: "node-a" });
    expect(await nodesOf(pool)).toEqual(["node-b"]);
    expect((await pool.pool.listDevices({})).devices.map(({ node }) => node)).toEqual(["node-b"]);
    await expect(pool.pool.getNode({ name: "node-a" })).rejects.toThrow(/there is no node "node-a"/);
    // A retry, as after a lost answer.
    await pool.pool.removeNode({ name: "node-a" });
    await expect(pool.pool.removeNode({ name: "node-z" })).rejects.toThrow(/MILLPOND_E_NOT_FOUND/);
    await pool.passTime(20);
    const metrics = await fetch(`${pool.controller.url}/metrics`, {
      headers: { authorization: `Bearer ${pool.controller.userToken}` },
    });
    expect(await metrics.text()).not.toContain("node-a");
    const kinds = async () =>
      (await pool.pool.listEvents({ subject: "node/node-a" })).events.map(({ kind }) => kind);
    expect(await kinds()).toEqual(["NodeJoined", "NodeRemoved"]);
    expect((await queues.getUsage({})).usage).toMatchObject([{ grantedGpuSeconds: 60 }]);
    const { records } = await accessOf(pool).listAudit({});
    expect(records.filter(({ what }) => what === "PoolService/RemoveNode")).toMatchObject([
      { subject: "node/node-a", result: "ok" },
      { subject: "node/node-a", result: "ok" },
      { subject: "node/node-z", result: "MILLPOND_E_NOT_FOUND" },
    ]);

    await expect(pool.addAgent("node-a", [4n * GiB])).rejects.toThrow(refused);
    await expect(pool.addAgent("node-a", [4n * GiB], { token: old })).rejects.toThrow(refused);
    await pool.restart();
    await pool.addAgent("node-b", [4n * GiB]);
    await expect(pool.addAgent("node-a", [4n * GiB], { token: old })).rejects.toThrow(refused);
    // Even if it was created within the same second.
    const token = await makeToken(pool, "new");
    await pool.addAgent("node-a", [4n * GiB], { token });
    expect(await nodesOf(pool)).toEqual(["node-a", "node-b"]);
    expect(await kinds()).toEqual(["NodeJoined", "NodeRemoved", "NodeJoined"]);
    await pool.claims.createClaim({ claim: { name: "both", leaseSeconds: 3600 } });
    await pool.claims.createClaim({ claim: { name: "fit", leaseSeconds: 3600 } });
    expect((await stateOf(pool, "fit"))?.state).toBe(ClaimState.BOUND);
    await pool.killAgent("node-a");
    await pool.passTime(4);
    await expect(pool.addAgent("node-a", [4n * GiB], { token: old })).rejects.toThrow(refused);
  });

  test("holds nothing and has no agent: else it is said what it has, and nothing happens", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const remove = async (lost = false) =>
      await pool.pool.removeNode({ name: "node-a", lost }).then(() => "removed", String);
    expect(await remove()).toMatch(
      /node node-a holds nothing, but its agent called 0 s ago\. Stop the agent.*MILLPOND_E_IN_USE/,
    );
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 3600 } });
    await pool.claims.createClaim({ claim: { name: "b", memoryBytes: GiB, leaseSeconds: 3600 } });
    expect(await remove()).toMatch(
      /node node-a holds 2 claims, and its agent called 0 s ago\. Run `millpond drain node-a --wait`/,
    );
    const { ticket } = await pool.claims.createTicket({ claim: "a" });
    await pool.agent("node-a").openSession(ticket);
    await pool.killAgent("node-a");
    await pool.claims.releaseClaim({ name: "a" });
    await pool.passTime(12);
    expect(await remove()).toMatch(
      /holds 1 claim and the allocations of 1 ended claim that may still be in use, and its agent called 12 s ago\. Start the agent .*`--lost`/,
    );
    expect(await remove(true)).toMatch(
      /node node-a is not lost: its agent called 12 s ago, and a node is lost after 30 s.*MILLPOND_E_IN_USE/,
    );
    await pool.restart();
    expect(await remove()).toMatch(/has not called since this controller began to lead 0 s ago/);
    expect(await remove(true)).toMatch(/has not called since this controller began to lead 0 s ago/);
    expect(await nodesOf(pool)).toEqual(["node-a"]);
    expect((await stateOf(pool, "b"))?.state).toBe(ClaimState.BOUND);
  });

  test("with all that was lost there: nothing is granted twice, whatever comes back", async () => {
    const pool = await TestPool.start({ "node-a": [4n * GiB] });
    const make = (name: string, nodeLoss: NodeLoss) =>
      pool.claims.createClaim({ claim: { name, memoryBytes: GiB, leaseSeconds: 3600, nodeLoss } });
    await make("keeps", NodeLoss.KEEP);
    await make("moves", NodeLoss.REQUEUE);
    for (const claim of ["keeps", "moves"]) {
      const { ticket } = await pool.claims.createTicket({ claim });
      await pool.agent("node-a").openSession(ticket);
    }
    const before = pool.agent("node-a");
    await pool.killAgent("node-a");
    await pool.passTime(31);
    expect((await pool.pool.removeNode({ name: "node-a", lost: true })).claims).toEqual(["keeps"]);
    expect(await stateOf(pool, "keeps")).toMatchObject({
      state: ClaimState.FAILED,
      reason: "its node node-a was removed from the pool",
    });
    expect(await stateOf(pool, "moves")).toMatchObject({ state: ClaimState.PENDING });
    await expect(pool.addAgent("node-a", [4n * GiB], { before })).rejects.toThrow(refused);

    // Its sessions continue. With a new token the agent can join only after they have ended, under any name.
    const token = await makeToken(pool, "new");
    for (const name of ["node-a", "node-c"]) {
      const agent = await pool.addAgent(name, [4n * GiB], { token, before, isObedient: false });
      expect(agent.sessions.size).toBe(2);
      await pool.passTime(3);
      expect(await nodesOf(pool)).not.toContain(name);
      expect(await stateOf(pool, "moves")).toMatchObject({ state: ClaimState.PENDING });
      const { events } = await pool.pool.listEvents({ subject: `node/${name}` });
      expect(events.at(-1)).toMatchObject({
        kind: "NodeWaits",
        message: "cannot join until its 2 sessions, unknown to this pool, have ended",
      });
      await pool.killAgent(name);
      await pool.passTime(12);
      const kinds = (await pool.pool.listEvents({ subject: `node/${name}` })).events.map(({ kind }) => kind);
      expect(kinds.at(-1)).toBe("NodeWaits");
    }
    const agent = await pool.addAgent("node-a", [4n * GiB], { token, before });
    await agent.settle();
    expect(agent.sessions.size).toBe(0);
    expect(await stateOf(pool, "moves")).toMatchObject({ state: ClaimState.BOUND });
  });
});
