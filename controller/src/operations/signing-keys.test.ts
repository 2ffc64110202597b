// SPDX-License-Identifier: Apache-2.0

// Rotation of the keys that tickets are signed with, over real sockets: programs are not affected, and a stolen key
// becomes useless.

import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { AccessService, AgentService, ClaimService, errorCodeOf, signTicket } from "@millpond/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { SqliteStore } from "../store/sqlite-store.ts";
import { PoolKey, poolKeyPath } from "../state/pool-key.ts";
import { openSigningKey, rotationOverlapSeconds } from "../state/signing-keys.ts";
import { fakeDevice } from "../testing/fake-agent.ts";
import { GiB, makeTestDirectory, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

function accessOf({ controller }: TestPool) {
  return createClient(AccessService, makeTransport(controller.url, controller.userToken));
}

function asProgram({ controller }: TestPool, token: string) {
  return createClient(ClaimService, makeTransport(controller.url, token));
}

async function outcome(call: Promise<unknown>): Promise<string> {
  return await call.then(
    () => "ok",
    (error: unknown) => errorCodeOf(error) ?? String(error),
  );
}

/** The current private key, as read from stolen state together with its pool key. */
async function stealKey(directory: string) {
  const store = SqliteStore.open({ directory });
  const { signingKeys } = await store.load();
  await store.close();
  const current = signingKeys.find(({ retiresAt }) => retiresAt === null);
  if (current === undefined) {
    throw new Error("there is no current key");
  }
  return openSigningKey(PoolKey.read(poolKeyPath(directory)), current);
}

const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ what: fc.constant("rotate" as const) }) },
  { weight: 1, arbitrary: fc.record({ what: fc.constant("restart" as const) }) },
  { weight: 2, arbitrary: fc.record({ what: fc.constant("claim" as const) }) },
  { weight: 2, arbitrary: fc.record({ what: fc.constant("release" as const) }) },
  { weight: 6, arbitrary: fc.record({ what: fc.constant("open" as const) }) },
  { weight: 4, arbitrary: fc.record({ what: fc.constant("sync" as const) }) },
  {
    weight: 5,
    arbitrary: fc.record({
      what: fc.constant("wait" as const),
      seconds: fc.constantFrom(1, 5, 30, 61, rotationOverlapSeconds),
    }),
  },
);

test("whenever keys are rotated, an agent has the key of each ticket, and the token of each claim is valid while it lives", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
      const pool = await TestPool.start({ "node-a": [64n * GiB] });
      const tokens = new Map<string, string>();
      const over: string[] = [];
      let count = 0;
      for (const each of steps) {
        const [oldest] = tokens.keys();
        if (each.what === "rotate") {
          await accessOf(pool).rotateKey({});
        } else if (each.what === "restart") {
          const before = pool.agent("node-a");
          await pool.restart();
          await pool.addAgent("node-a", [64n * GiB], { before });
        } else if (each.what === "claim") {
          const name = `claim-${(count += 1)}`;
          await pool.claims.createClaim({ claim: { name, memoryBytes: GiB, leaseSeconds: 604_800 } });
          tokens.set(name, (await pool.claims.createClaimToken({ name })).secret);
        } else if (each.what === "release" && oldest !== undefined) {
          await pool.claims.releaseClaim({ name: oldest });
          over.push(tokens.get(oldest) ?? "");
          tokens.delete(oldest);
        } else if (each.what === "sync") {
          await pool.agent("node-a").sync();
        } else if (each.what === "open") {
          for (const [claim, token] of tokens) {
            const { ticket } = await asProgram(pool, token).createTicket({ claim });
            const agent = pool.agent("node-a");
            const id = agent.takeTicket(ticket);
            agent.sessions.delete(id);
          }
        } else if (each.what === "wait") {
          await pool.passTime(1);
          pool.clock.advance((each.seconds - 1) * 1000);
          await pool.agent("node-a").sync();
        }
      }
      for (const [name, token] of tokens) {
        expect(await outcome(asProgram(pool, token).getClaim({ name }))).toBe("ok");
      }
      for (const token of over) {
        expect(await outcome(asProgram(pool, token).createTicket({ claim: "any" }))).not.toBe("ok");
      }
      await pool.stop();
    }),
    { numRuns: 12 },
  );
});

test("a ticket of a stolen key is accepted until the key retires, and then by nobody", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  const { claim } = await pool.claims.createClaim({
    claim: { name: "a", memoryBytes: GiB, leaseSeconds: 604_800 },
  });
  const before = pool.agent("node-a");
  await pool.stop();
  const stolen = await stealKey(pool.directory);
  await pool.restart();
  const agent = await pool.addAgent("node-a", [4n * GiB], { before });
  const forge = (): string => {
    const issued = Math.floor(pool.clock.unixMs() / 1000);
    const allocation = agent.desired?.allocations[0];
    return signTicket(
      {
        session: randomUUID(),
        claim: "a",
        node: "node-a",
        epoch: Number(claim?.allocation?.epoch),
        devices: [{ uuid: "GPU-0", memoryBytes: Number(4n * GiB), computePercent: 100 }],
        term: Number(agent.desired?.term ?? 0n),
        order: Number(allocation?.epoch ?? 0n),
        issued,
        expires: issued + 60,
      },
      stolen,
    );
  };
  await accessOf(pool).rotateKey({});
  await agent.sync();
  agent.takeTicket(forge());
  pool.clock.advance((rotationOverlapSeconds - 1) * 1000);
  agent.takeTicket(forge());
  pool.clock.advance(1000);
  expect(() => agent.takeTicket(forge())).toThrow(
    /it is signed with the key [0-9a-f]{16}, which.*TICKET_INVALID/,
  );
  await agent.sync();
  expect(() => agent.takeTicket(forge())).toThrow("[MILLPOND_E_TICKET_INVALID]");
});

test("a revoked key invalidates its tickets and the tokens derived from it at once", async () => {
  const pool = await TestPool.start({ "node-a": [4n * GiB] });
  await pool.claims.createClaim({ claim: { name: "a", memoryBytes: GiB, leaseSeconds: 604_800 } });
  const { secret: claimToken } = await pool.claims.createClaimToken({ name: "a" });
  const { secret: programToken } = await pool.claims.createProgramToken({});
  const { ticket } = await pool.claims.createTicket({ claim: "a" });
  const agent = pool.agent("node-a");
  const session = await agent.openSession((await pool.claims.createTicket({ claim: "a" })).ticket);
  const { key } = await accessOf(pool).rotateKey({ revoke: true });

  expect(await outcome(asProgram(pool, claimToken).getClaim({ name: "a" }))).toBe(
    "MILLPOND_E_UNAUTHENTICATED",
  );
  expect(await outcome(asProgram(pool, programToken).listClaims({}))).toBe("MILLPOND_E_UNAUTHENTICATED");
  // The next ticket is delayed until the agent has the new key.
  const next = pool.claims.createTicket({ claim: "a" });
  await pool.settle();
  await agent.settle();
  expect(() => agent.takeTicket(ticket)).toThrow("[MILLPOND_E_TICKET_INVALID]");
  agent.takeTicket((await next).ticket);
  expect(agent.sessions.has(session)).toBe(true);
  const { keys } = await accessOf(pool).listKeys({});
  expect(keys).toMatchObject([
    { id: key?.id, revoked: false },
    { revoked: true, derives: false },
  ]);
  const { secret: newToken } = await pool.claims.createClaimToken({ name: "a" });
  expect(await outcome(asProgram(pool, newToken).getClaim({ name: "a" }))).toBe("ok");
});

test("only administrators see and rotate keys, the audit says who did, and agents of one key only are named first", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const { secret } = await accessOf(pool).createToken({ name: "chief", role: "tenant-admin" });
  const chief = createClient(AccessService, makeTransport(pool.controller.url, secret));
  expect(await outcome(chief.rotateKey({}))).toBe("MILLPOND_E_FORBIDDEN");
  expect(await outcome(chief.listKeys({}))).toBe("MILLPOND_E_FORBIDDEN");
  const earlier = createClient(AgentService, makeTransport(pool.controller.url, pool.controller.agentToken));
  const report = {
    node: "node-b",
    run: "earlier",
    agentUrl: "http://127.0.0.1:7171",
    devices: [fakeDevice(0, GiB)],
  };
  const { revision } = await earlier.sync({ ...report, sequence: 1n });
  const waiting = earlier.sync({ ...report, sequence: 2n, knownRevision: revision }).catch(errorCodeOf);
  await pool.settle();
  await expect(accessOf(pool).rotateKey({})).rejects.toThrow(
    /an agent is of a release.*: node-b.*MILLPOND_E_VERSION/,
  );
  expect(await outcome(accessOf(pool).rotateKey({ revoke: true }))).toBe("ok");
  const { records } = await accessOf(pool).listAudit({});
  expect(records.filter(({ what }) => what === "AccessService/RotateKey")).toMatchObject([
    { who: "chief", result: "MILLPOND_E_FORBIDDEN" },
    { result: "MILLPOND_E_VERSION" },
    { who: "file:user", subject: "signing-key", result: "ok" },
  ]);
  await pool.killAgent("node-a");
  await pool.stop();
  await waiting;
});

test("neither the database nor its log nor a backup has a private key or a token in clear", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  await accessOf(pool).rotateKey({});
  const { path } = await pool.pool.backUp({});
  await pool.stop();
  const key = await stealKey(pool.directory);
  const secret = key.export({ format: "der", type: "pkcs8" }).subarray(-32);
  const token = pool.controller.userToken;
  const files = [
    path,
    ...readdirSync(pool.directory)
      .filter((name) => name.startsWith("controller.sqlite"))
      .map((name) => join(pool.directory, name)),
  ];
  expect(files.length).toBeGreaterThan(1);
  for (const file of files) {
    const bytes = readFileSync(file);
    for (const form of [secret, secret.toString("base64").slice(0, 40), secret.toString("hex"), token]) {
      expect([file, bytes.includes(form)]).toEqual([file, false]);
    }
  }
});

test("the unsealed key of an earlier version is sealed, overwritten, and verifies what it signed", async () => {
  const directory = makeTestDirectory();
  await SqliteStore.open({ directory }).close();
  const key = await stealKey(directory);
  const clear = key.export({ format: "der", type: "pkcs8" });
  const { DatabaseSync } = await import("node:sqlite");
  const database = new DatabaseSync(join(directory, "controller.sqlite"));
  database.exec("DELETE FROM signing_keys");
  database.prepare("UPDATE pool SET ticket_key = ?").run(clear);
  database.close();
  expect(readFileSync(join(directory, "controller.sqlite")).includes(clear)).toBe(true);

  const store = SqliteStore.open({ directory });
  const { signingKeys } = await store.load();
  await store.close();
  expect(signingKeys).toHaveLength(1);
  expect((await stealKey(directory)).equals(key)).toBe(true);
  for (const name of readdirSync(directory)) {
    expect([name, readFileSync(join(directory, name)).includes(clear)]).toEqual([name, false]);
  }
});
