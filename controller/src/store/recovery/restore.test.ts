// SPDX-License-Identifier: Apache-2.0

// A state restored from a backup: running sessions continue, nothing is granted twice, and agents obey.

import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createClient } from "@connectrpc/connect";
import { AccessService, ClaimService, ClaimState, errorCodeOf, QueueService } from "@millpond/api";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { startController } from "../../controller.ts";
import { PoolKey } from "../../state/pool-key.ts";
import { postgresServer } from "../../testing/backends.ts";
import type { FakeAgent } from "../../testing/fake-agent.ts";
import { missingPostgres } from "../../testing/postgres-server.ts";
import { GiB, makeTestDirectory, TestPool } from "../../testing/test-pool.ts";
import { makeTransport } from "../../testing/transport.ts";
import { backUpStopped } from "./backup.ts";
import { PostgresStore } from "../postgres-store.ts";
import { restoreBackup, resumeDatabase } from "./restore.ts";
import { SqliteStore } from "../sqlite-store.ts";

const memories = [4n * GiB, 4n * GiB];

/** Restores a backup, and restarts the controller and the node's agent. */
async function restore(pool: TestPool, from: string, before: FakeAgent): Promise<FakeAgent> {
  await pool.stop();
  pool.clock.advance(1000);
  restoreBackup({ from, to: pool.directory, now: pool.clock.unixMs() });
  await pool.restart();
  return await pool.addAgent(before.node, memories, { before });
}

async function claimOf(pool: TestPool, name: string) {
  return (await pool.claims.getClaim({ name })).claim;
}

async function runProgram(pool: TestPool, name: string): Promise<string> {
  const { ticket } = await pool.claims.createTicket({ claim: name });
  return await pool.agent("node-a").openSession(ticket);
}

function sizes(agent: FakeAgent): Record<string, bigint> {
  return Object.fromEntries(
    [...agent.sessions.values()].map(({ claim, devices }) => [claim, devices[0]?.memoryBytes ?? 0n]),
  );
}

describe("a restored state", () => {
  test("adopts what was granted since, as it is now, and takes it from those that had it before", async () => {
    const pool = await TestPool.start({ "node-a": memories });
    await pool.claims.createClaim({ claim: { name: "grows", memoryBytes: GiB, leaseSeconds: 60 } });
    await runProgram(pool, "grows");
    const gone = await pool.claims.createClaim({
      claim: { name: "gone", exclusive: true, leaseSeconds: 20 },
    });
    const { path } = await pool.pool.backUp({});

    const queues = createClient(QueueService, makeTransport(pool.controller.url, pool.controller.userToken));
    await queues.putTenant({ tenant: { name: "team-a" } });
    await queues.putQueue({ queue: { name: "research" } });
    await pool.claims.releaseClaim({ name: "gone" });
    await pool.claims.createClaim({
      claim: {
        name: "new",
        exclusive: true,
        tenant: "team-a",
        queue: "research",
        owner: "ann",
        priority: 7,
        leaseSeconds: 60,
        nodeLabels: {},
      },
    });
    await runProgram(pool, "new");
    const resizing = pool.claims.resizeClaim({ name: "grows", memoryBytes: 2n * GiB });
    await pool.agent("node-a").settle();
    await resizing;
    const before = await claimOf(pool, "new");
    expect(before?.allocation?.devices[0]?.uuid).toBe(gone.claim?.allocation?.devices[0]?.uuid);

    const agent = await restore(pool, path, pool.agent("node-a"));
    await agent.settle();
    expect(sizes(agent)).toEqual({ grows: 2n * GiB, new: 4n * GiB });
    expect(await claimOf(pool, "new")).toMatchObject({
      state: ClaimState.BOUND,
      tenant: "team-a",
      queue: "research",
      owner: "ann",
      priority: 7,
      exclusive: true,
      allocation: before?.allocation,
    });
    expect(await claimOf(pool, "grows")).toMatchObject({
      state: ClaimState.BOUND,
      memoryBytes: 2n * GiB,
      allocation: { devices: [{ memoryBytes: 2n * GiB }] },
    });
    // In the backup the claim is on a device that now belongs to another.
    expect(await claimOf(pool, "gone")).toMatchObject({ state: ClaimState.PENDING, requeues: 1 });

    // Nothing is granted while agents may still report further sessions.
    await pool.claims.createClaim({ claim: { name: "later", memoryBytes: 2n * GiB, leaseSeconds: 60 } });
    await pool.passTime(14);
    expect((await claimOf(pool, "later"))?.state).toBe(ClaimState.PENDING);
    await pool.passTime(2);
    const later = await claimOf(pool, "later");
    expect(later?.state).toBe(ClaimState.BOUND);
    expect(later?.allocation?.epoch).toBeGreaterThan(before?.allocation?.epoch ?? 0n);
    await pool.passTime(10);
    expect((await claimOf(pool, "gone"))?.state).toBe(ClaimState.RELEASED);
    expect(sizes(agent)).toEqual({ grows: 2n * GiB, new: 4n * GiB });

    await pool.claims.releaseClaim({ name: "new" });
    await agent.settle();
    expect(Object.keys(sizes(agent))).toEqual(["grows"]);
  });

  test("locks no agent out, whatever terms they have seen, and may be put back again", async () => {
    const pool = await TestPool.start({ "node-a": memories });
    const { path } = await pool.pool.backUp({});
    let before = pool.agent("node-a");
    for (let round = 0; round < 3; round++) {
      await pool.restart();
      before = await pool.addAgent("node-a", memories, { before });
    }
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 60 } });
    await runProgram(pool, "a");
    const epochs: (bigint | undefined)[] = [];
    for (let round = 0; round < 2; round++) {
      const agent = await restore(pool, path, pool.agent("node-a"));
      await agent.settle();
      expect(agent.refused).toBe(0);
      expect(Object.keys(sizes(agent))).toContain("a");
      await pool.passTime(16);
      const name = `after-${round}`;
      const { claim } = await pool.claims.createClaim({
        claim: { name, memoryBytes: GiB, leaseSeconds: 600 },
      });
      epochs.push(claim?.allocation?.epoch);
      await runProgram(pool, name);
    }
    // Allocations of the first restored state are adopted by the second, and their epochs do not overlap with its own.
    expect(Object.keys(sizes(pool.agent("node-a")))).toEqual(["a", "after-0", "after-1"]);
    expect(new Set(epochs).size).toBe(2);
  });

  test("does not say that there is no such claim before the agents had time to tell of it", async () => {
    const pool = await TestPool.start({ "node-a": memories });
    const { path } = await pool.pool.backUp({});
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 60 } });
    const before = pool.agent("node-a");
    await runProgram(pool, "a");
    await pool.stop();
    restoreBackup({ from: path, to: pool.directory, now: pool.clock.unixMs() });
    await pool.restart();
    const early = await pool.claims.waitClaim({ name: "a", timeoutSeconds: 1 }).catch(errorCodeOf);
    expect(early).toBe("MILLPOND_E_NOT_LEADER");
    await pool.addAgent("node-a", memories, { before });
    expect((await claimOf(pool, "a"))?.state).toBe(ClaimState.BOUND);
    await pool.passTime(16);
    const strange = await pool.claims.getClaim({ name: "b" }).catch(errorCodeOf);
    expect(strange).toBe("MILLPOND_E_NOT_FOUND");
  });

  test("takes a node back that joined since, with what runs there", async () => {
    const pool = await TestPool.start();
    const { path } = await pool.pool.backUp({});
    const joined = await pool.addAgent("node-a", memories);
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 60 } });
    await runProgram(pool, "a");
    const agent = await restore(pool, path, joined);
    await agent.settle();
    expect(Object.keys(sizes(agent))).toEqual(["a"]);
    expect((await claimOf(pool, "a"))?.state).toBe(ClaimState.BOUND);
  });

  test("does not adopt what no ticket of this pool says, or a claim that was granted anew", async () => {
    const pool = await TestPool.start({ "node-a": memories });
    const { path } = await pool.pool.backUp({});
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 60 } });
    await pool.claims.createClaim({ claim: { name: "forged", memoryBytes: GiB, leaseSeconds: 60 } });
    await runProgram(pool, "a");
    const forged = await runProgram(pool, "forged");
    const agent = pool.agent("node-a");
    const own = agent.sessions.get(forged);
    if (own === undefined) {
      throw new Error("there is no session to forge");
    }
    agent.sessions.set(forged, { ...own, epoch: own.epoch + 1 });
    await pool.stop();
    restoreBackup({ from: path, to: pool.directory, now: pool.clock.unixMs() });
    await pool.restart();
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 600 } });
    const later = await pool.addAgent("node-a", memories, { before: agent });
    expect([...later.sessions.values()]).toEqual([]);
    const { events } = await pool.pool.listEvents({});
    expect(events.filter(({ kind }) => kind === "ClaimNotAdopted")).toHaveLength(1);
  });
});

describe("a backup", () => {
  test("has the tokens and is for its owner only; the state that it replaces is kept", async () => {
    const pool = await TestPool.start({ "node-a": memories });
    const { path, bytes } = await pool.pool.backUp({});
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(path).size).toBe(Number(bytes));
    const { identity, agentToken } = pool.controller;
    await pool.stop();

    const elsewhere = makeTestDirectory();
    const restored = restoreBackup({
      from: path,
      to: elsewhere,
      now: 0,
      keyFile: join(pool.directory, "pool.key"),
    });
    expect(restored).toMatchObject({ identity, nodes: 1, replaced: undefined });
    expect(readFileSync(join(elsewhere, "agent.token"), "utf8")).toContain(agentToken);
    expect(statSync(join(elsewhere, "agent.token")).mode & 0o777).toBe(0o600);

    const again = restoreBackup({ from: path, to: elsewhere, now: 0 });
    expect(existsSync(join(again.replaced ?? "", "controller.sqlite"))).toBe(true);
    // Above all values of the replaced state, even if the clock is wrong.
    expect(again.resumedAt).toBeGreaterThan(restored.resumedAt);
  });

  test("is not made of the state, nor put in its place, while its controller runs", async () => {
    const pool = await TestPool.start();
    const { path } = await pool.pool.backUp({});
    const made = await backUpStopped(pool.directory, join(pool.directory, "x.backup")).catch(errorCodeOf);
    expect(made).toBe("MILLPOND_E_STATE_LOCKED");
    expect(() => restoreBackup({ from: path, to: pool.directory, now: 0 })).toThrow(
      "MILLPOND_E_STATE_LOCKED",
    );
    await pool.stop();
    const to = join(pool.directory, "x.backup");
    expect(await backUpStopped(pool.directory, to)).toMatchObject({ path: to });
    expect(await backUpStopped(pool.directory, to).catch(errorCodeOf)).toBe("MILLPOND_E_ALREADY_EXISTS");
  });

  test("that is none, or damaged, changes nothing", async () => {
    const directory = makeTestDirectory();
    await SqliteStore.open({ directory }).close();
    const before = readFileSync(join(directory, "controller.sqlite"));
    const from = join(directory, "not.backup");
    expect(() => restoreBackup({ from, to: directory, now: 0 })).toThrow("MILLPOND_E_NOT_FOUND");
    writeFileSync(from, "this is no database");
    expect(() => restoreBackup({ from, to: directory, now: 0 })).toThrow("MILLPOND_E_STATE_BROKEN");
    new DatabaseSync(join(directory, "empty.backup")).close();
    expect(() => restoreBackup({ from: join(directory, "empty.backup"), to: directory, now: 0 })).toThrow(
      "MILLPOND_E_STATE_BROKEN",
    );
    expect(readFileSync(join(directory, "controller.sqlite")).equals(before)).toBe(true);
  });
});

describe("the pool key of a backup", () => {
  /** A separate pool with a claim, its backup, and its directory. */
  async function backedUp() {
    const pool = await TestPool.start({ "node-a": memories });
    await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 604_800 } });
    const { secret } = await pool.claims.createClaimToken({ name: "a" });
    const { path: from } = await pool.pool.backUp({});
    await pool.stop();
    return { from, directory: pool.directory, secret, userToken: pool.controller.userToken };
  }

  const start = async (stateDirectory: string) => {
    const controller = await startController({
      stateDirectory,
      listen: "127.0.0.1:0",
      log: pino({ level: "silent" }),
    });
    onTestFinished(() => controller[Symbol.asyncDispose]());
    return controller;
  };

  test("is needed on another host, and named when it is missing or another's", async () => {
    const { from, directory, secret, userToken } = await backedUp();
    const other = makeTestDirectory();
    const to = join(other, "state");
    expect(() => restoreBackup({ from, to, now: 0 })).toThrow(
      /there is no pool key in .*pool\.key.*MILLPOND_E_POOL_KEY/,
    );
    PoolKey.readOrMake(join(other, "another.key"));
    expect(() => restoreBackup({ from, to, now: 0, keyFile: join(other, "another.key") })).toThrow(
      /is sealed with the pool key [0-9a-f]{16}, and .*another\.key has [0-9a-f]{16}.*MILLPOND_E_POOL_KEY/,
    );
    expect(existsSync(join(to, "controller.sqlite"))).toBe(false);
    restoreBackup({ from, to, now: 0, keyFile: join(directory, "pool.key") });
    expect(statSync(join(to, "pool.key")).mode & 0o777).toBe(0o600);
    const controller = await start(to);
    expect(controller.userToken).toBe(userToken);
    const asProgram = createClient(ClaimService, makeTransport(controller.url, secret));
    expect((await asProgram.getClaim({ name: "a" })).claim?.name).toBe("a");
  });

  test("may be given up: the pool keeps its claims and gets new keys and tokens", async () => {
    const { from, secret, userToken } = await backedUp();
    const to = makeTestDirectory();
    expect(restoreBackup({ from, to, now: Date.now(), withNewKeys: true })).toMatchObject({
      claims: 1,
      nodes: 1,
    });
    const controller = await start(to);
    expect(controller.userToken).not.toBe(userToken);
    const as = (token: string) => createClient(ClaimService, makeTransport(controller.url, token));
    expect((await as(controller.userToken).getClaim({ name: "a" })).claim?.name).toBe("a");
    expect(await as(secret).getClaim({ name: "a" }).catch(errorCodeOf)).toBe("MILLPOND_E_UNAUTHENTICATED");
    const access = createClient(AccessService, makeTransport(controller.url, controller.userToken));
    const { keys } = await access.listKeys({});
    expect(keys).toMatchObject([
      { retiresAt: 0n, derives: true },
      { revoked: false, derives: false },
    ]);
  });

  test("is asked for by a controller whose state is sealed with another one", async () => {
    const { directory } = await backedUp();
    writeFileSync(
      join(directory, "pool.key"),
      readFileSync(PoolKey.readOrMake(join(makeTestDirectory(), "pool.key")).path),
    );
    await expect(start(directory)).rejects.toThrow(
      /signing-key\/[0-9a-f]{16} is sealed with the pool key .*Copy `pool\.key` .*\[MILLPOND_E_POOL_KEY\]$/,
    );
  });
});

describe.skipIf(missingPostgres !== undefined)("a database that its own tools have put back", () => {
  test("goes on in a term beyond all that agents have seen, when no controller leads on it", async () => {
    const url = await (await postgresServer()).makeDatabase();
    const store = await PostgresStore.open({ url });
    const candidate = { id: "one", url: "http://127.0.0.1:1" };
    const { term } = await store.campaign(candidate);
    expect(await resumeDatabase(url, { now: 0 }).catch(errorCodeOf)).toBe("MILLPOND_E_STATE_LOCKED");
    await store.resign(candidate);
    const { resumedAt } = await resumeDatabase(url, { now: 0 });
    expect(resumedAt).toBeGreaterThan(term + 1_000_000);
    expect(await store.load()).toMatchObject({
      epoch: resumedAt,
      revision: resumedAt,
      restoration: { epoch: 0, resumedAt },
    });
    expect((await store.campaign({ ...candidate, id: "two" })).term).toBe(resumedAt + 1);
    await store.close();
  });
});
