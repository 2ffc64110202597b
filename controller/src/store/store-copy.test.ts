// SPDX-License-Identifier: Apache-2.0

// The state in a file is moved to a database, completely and with its sessions; agents then ignore the file's
// controller.

import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createClient } from "@connectrpc/connect";
import { ClaimService, PoolService } from "@millpond/api";
import { describe, expect, onTestFinished, test } from "vitest";
import { postgresServer } from "../testing/backends.ts";
import { ControllerProcess } from "../testing/controller-process.ts";
import { Clients, makeRandom } from "../testing/crash-clients.ts";
import { missingPostgres } from "../testing/postgres-server.ts";
import {
  allocation,
  auditEntry,
  changes,
  claim,
  event,
  node,
  queue,
  removedNode,
  tenant,
  token,
  usage,
} from "../testing/records.ts";
import { TestNode } from "../testing/test-node.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";
import { PostgresStore } from "./postgres-store.ts";
import { SqliteStore } from "./sqlite-store.ts";
import { databaseFileName } from "./state-file.ts";
import type { Store } from "../state/store.ts";
import { copyStore } from "./store-copy.ts";

const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;

async function makeDatabase(): Promise<string> {
  return await (await postgresServer()).makeDatabase();
}

async function openDatabase(url: string): Promise<PostgresStore> {
  const store = await PostgresStore.open({ url });
  onTestFinished(() => store.close());
  return store;
}

/** A state directory that contains everything that a store can hold. */
async function makeState(): Promise<string> {
  const directory = makeTestDirectory();
  const store = SqliteStore.open({ directory });
  const { term } = await store.campaign({ id: "", url: "" });
  const all = {
    nodes: [node],
    removedNodes: [removedNode],
    claims: [claim("a"), claim("b", { arrival: 2 })],
    allocations: [allocation("a")],
    queues: [queue],
    tenants: [tenant],
    tokens: [token],
  };
  await store.commit(changes(7, { ...all, events: [{ id: 3, ...event }], usage: [usage] }), term);
  for (let revision = 8; revision < 12; revision++) {
    await store.commit(changes(revision, { audit: [auditEntry], usage: [usage] }), term);
  }
  await store.close();
  return directory;
}

async function readAll(store: Store) {
  const state = await store.load();
  return {
    state,
    events: await store.listEvents({ after: 0, subject: "", limit: 100_000, end: "oldest" }),
    audit: await store.listAudit({ after: 0, tenant: "", limit: 100_000 }),
    usage: await store.listUsage({ from: 0, to: Number.MAX_SAFE_INTEGER }),
  };
}

async function readFile(directory: string) {
  const store = SqliteStore.open({ directory });
  const all = await readAll(store);
  const { term } = await store.campaign({ id: "", url: "" });
  await store.close();
  return { ...all, term };
}

describe.skipIf(missingPostgres !== undefined)(`a copy of a state in a file${why}`, () => {
  test("has all of it, goes on from there, and outranks the file", async () => {
    const [from, to] = [await makeState(), await makeDatabase()];
    const copied = await copyStore({ from, to });
    expect(Object.fromEntries(copied)).toMatchObject({ claims: 2, virtual_gpus: 2, audit: 4, usage: 5 });
    const { term: oldTerm, ...old } = await readFile(from);
    const store = await openDatabase(to);
    expect(await readAll(store)).toEqual(old);
    const { term } = await store.campaign({ id: randomUUID(), url: "http://127.0.0.1:7170" });
    expect(term).toBeGreaterThan(oldTerm + 1000);
    await store.commit(changes(12, { audit: [auditEntry] }), term);
    const audit = await store.listAudit({ after: 0, tenant: "", limit: 10 });
    expect(audit.map(({ id }) => id)).toEqual([1, 2, 3, 4, 5]);
  });

  test("is not made while a controller runs, over another state, or of a file of another version", async () => {
    const [from, to] = [await makeState(), await makeDatabase()];
    const running = SqliteStore.open({ directory: from });
    await expect(copyStore({ from, to })).rejects.toThrow("[MILLPOND_E_STATE_LOCKED]");
    await running.close();
    await expect(copyStore({ from: makeTestDirectory(), to })).rejects.toThrow("[MILLPOND_E_NOT_FOUND]");
    await expect(copyStore({ from, to: "postgres://127.0.0.1:1/x" })).rejects.toThrow(
      "[MILLPOND_E_STORE_UNREACHABLE]",
    );

    await expect(copyStore({ from: to, to: from })).rejects.toThrow(
      /not out of one\. Keep the database: .*\[MILLPOND_E_INVALID\]$/,
    );

    const versions = [
      [1, "an older version"],
      [1000, "[MILLPOND_E_STATE_NEWER]"],
    ] as const;
    for (const [version, message] of versions) {
      const other = await makeState();
      const database = new DatabaseSync(join(other, databaseFileName));
      database.exec(`PRAGMA user_version = ${version}`);
      database.close();
      await expect(copyStore({ from: other, to })).rejects.toThrow(message);
    }

    // None of these attempts has left anything in the database.
    await copyStore({ from, to });
    await expect(copyStore({ from, to })).rejects.toThrow(
      /holds a state, which has been changed 11 times.*\[MILLPOND_E_ALREADY_EXISTS\]$/,
    );
  });

  test.each([1, 2])("of any history goes on with its claims and their sessions, seed %i", async (seed) => {
    const [from, to] = [makeTestDirectory(), await makeDatabase()];
    let controller = await ControllerProcess.start(from);
    onTestFinished(async () => void (await controller.end("SIGKILL")));
    const at = () => ({ url: controller.url, token: controller.agentToken });
    const clientsOf = () => {
      const transport = makeTransport(controller.url, controller.userToken, { patienceMs: 60_000 });
      return { claims: createClient(ClaimService, transport), pool: createClient(PoolService, transport) };
    };
    const nodes = ["node-a", "node-b"].map((name) => new TestNode(name, at()));
    onTestFinished(async () => {
      await Promise.all(nodes.map((each) => each[Symbol.asyncDispose]()));
    });
    await Promise.all(nodes.map(({ agent }) => agent.until(() => true)));
    const clients = new Clients(makeRandom(seed), nodes);
    // Whether anything of the clients still runs at the end depends on the timing of their calls; these sessions do.
    await clients.keepSessions(clientsOf().claims, 4);
    const running = Array.from({ length: 8 }, () => clients.run(clientsOf().claims));
    await clients.until(100);
    await controller.end("SIGKILL");
    await Promise.all(running);
    expect(nodes.flatMap(({ agent }) => [...agent.sessions]).length).toBeGreaterThanOrEqual(4);

    await copyStore({ from, to });
    const { term: _term, ...old } = await readFile(from);
    const store = await openDatabase(to);
    expect(await readAll(store)).toEqual(old);

    controller = await ControllerProcess.start(from, { store: to });
    const { claims, pool } = clientsOf();
    await Promise.all(nodes.map((each) => each.replaceAgent(at())));
    await Promise.all(nodes.map(({ agent }) => agent.until(({ term }) => term > 1000n)));
    const found = await claims.listClaims({ includeEnded: true });
    expect(clients.takeStock(found.claims, (await pool.listDevices({})).devices)).toEqual([]);
  });
});
