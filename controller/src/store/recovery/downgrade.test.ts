// SPDX-License-Identifier: Apache-2.0

import { existsSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, onTestFinished, test } from "vitest";
import { PoolKey, poolKeyPath } from "../../state/pool-key.ts";
import { openSigningKey } from "../../state/signing-keys.ts";
import { postgresServer } from "../../testing/backends.ts";
import { missingPostgres } from "../../testing/postgres-server.ts";
import { allocation, changes, claim, node, queue, tenant, token } from "../../testing/records.ts";
import { makeTestDirectory } from "../../testing/test-pool.ts";
import type { Store } from "../../state/store.ts";
import { downgradeDatabase, downgradeDirectory } from "./downgrade.ts";
import { missingMigrations, previousSchema } from "../migrations.ts";
import { PostgresConnections } from "../postgres-connections.ts";
import { PostgresStore } from "../postgres-store.ts";
import { SqliteStore } from "../sqlite-store.ts";
import { databaseFileName } from "../state-file.ts";

const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;
const nowMs = Date.UTC(2026, 10, 27, 13);

const written = changes(1, {
  epoch: 3,
  nodes: [node],
  queues: [queue],
  tenants: [tenant],
  tokens: [token],
  claims: [claim("train", { state: "bound", waitingSince: null })],
  allocations: [allocation("train", { epoch: 3 })],
});

/** The subset that both releases know. */
async function contentOf(store: Store) {
  const { claims, allocations, nodes, queues, tenants, tokens, revision, epoch, signingKeys } =
    await store.load();
  const current = signingKeys.find(({ retiresAt }) => retiresAt === null);
  return {
    claims,
    allocations,
    nodes: nodes.map((each) => ({
      ...each,
      devices: each.devices.map((device) => ({ ...device, overheadBytes: 0n, cordonReason: "" })),
    })),
    queues,
    tenants,
    tokens,
    revision,
    epoch,
    publicKey: current?.publicKey,
  };
}

async function write(store: Store): Promise<void> {
  const { term } = await store.campaign({ id: "a", url: "http://127.0.0.1:7170" });
  await store.commit(written, term);
  await store.resign({ id: "a", url: "" });
}

describe("a directory", () => {
  const schemaOf = (database: DatabaseSync) =>
    database
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
      .all()
      .map(({ name }) => [name, database.prepare(`PRAGMA table_info(${String(name)})`).all()]);

  test("gets the schema of the release before, with its content, and is upgraded again", async () => {
    const directory = makeTestDirectory();
    const store = SqliteStore.open({ directory });
    await write(store);
    const before = await contentOf(store);
    const [key] = (await store.load()).signingKeys;
    await store.close();

    const backup = await downgradeDirectory(directory, nowMs);
    expect(existsSync(backup)).toBe(true);
    using older = new DatabaseSync(":memory:");
    for (const { sql } of missingMigrations("sqlite", 0).slice(0, previousSchema.sqlite)) older.exec(sql);
    {
      using database = new DatabaseSync(join(directory, databaseFileName));
      expect(schemaOf(database)).toEqual(schemaOf(older));
      expect(database.prepare("PRAGMA user_version").get()).toEqual({ user_version: previousSchema.sqlite });
      const poolKey = PoolKey.read(poolKeyPath(directory));
      const unsealed = database.prepare("SELECT ticket_key FROM pool").get()?.["ticket_key"];
      expect(Buffer.from(unsealed as Uint8Array)).toEqual(
        key && openSigningKey(poolKey, key).export({ format: "der", type: "pkcs8" }),
      );
    }
    await expect(downgradeDirectory(directory, nowMs)).rejects.toThrow("[MILLPOND_E_STATE_BROKEN]");
    const again = SqliteStore.open({ directory });
    onTestFinished(() => again.close());
    expect(await contentOf(again)).toEqual(before);
  });

  test("is left alone while a controller runs on it, and without its pool key", async () => {
    const directory = makeTestDirectory();
    const store = SqliteStore.open({ directory });
    await expect(downgradeDirectory(directory, nowMs)).rejects.toThrow("[MILLPOND_E_STATE_LOCKED]");
    await store.close();
    await expect(downgradeDirectory(makeTestDirectory(), nowMs)).rejects.toThrow("[MILLPOND_E_NOT_FOUND]");
  });
});

describe.skipIf(missingPostgres !== undefined)(`a database${why}`, () => {
  /** Tables with their columns, functions and triggers. */
  const schemaOf = async (url: string) => {
    const connections = new PostgresConnections(url);
    try {
      return await Promise.all(
        [
          `SELECT table_name, column_name, data_type, column_default, is_nullable FROM information_schema.columns
             WHERE table_schema = 'millpond' ORDER BY table_name, column_name`,
          `SELECT proname, pg_get_functiondef(oid) AS definition FROM pg_proc
             WHERE pronamespace = 'millpond'::regnamespace ORDER BY proname`,
          "SELECT tgname, tgrelid::regclass::text AS on FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgname",
          "SELECT version FROM schema_versions ORDER BY version",
        ].map((sql) => connections.query(sql)),
      );
    } finally {
      await connections.close();
    }
  };

  test("gets the schema of the release before, with its content, and is upgraded again", async () => {
    const server = await postgresServer();
    const [url, olderUrl] = [await server.makeDatabase(), await server.makeDatabase()];
    const older = new PostgresConnections(olderUrl);
    await older.transaction("read and write", async (session) => {
      await older.makeSchema(session);
      await session.query("CREATE TABLE schema_versions (version INTEGER PRIMARY KEY)");
      for (const { version, sql } of missingMigrations("postgres", 0).slice(0, previousSchema.postgres)) {
        await session.query(sql);
        await session.query("INSERT INTO schema_versions VALUES ($1)", [version]);
      }
    });
    await older.close();

    const keyFile = poolKeyPath(makeTestDirectory());
    const poolKey = PoolKey.readOrMake(keyFile);
    const store = await PostgresStore.open({ url, poolKey });
    const leader = { id: "a", url: "http://127.0.0.1:7170" };
    const { term } = await store.campaign(leader);
    await store.commit(written, term);
    const before = await contentOf(store);
    await expect(downgradeDatabase(url, keyFile)).rejects.toThrow("[MILLPOND_E_STATE_LOCKED]");
    await store.resign(leader);
    await downgradeDatabase(url, keyFile);
    // A running controller of this release does not lead on a schema of the older one.
    await expect(store.campaign(leader)).rejects.toThrow("[MILLPOND_E_STATE_BROKEN]");
    await store.close();

    expect(await schemaOf(url)).toEqual(await schemaOf(olderUrl));
    await expect(downgradeDatabase(url, keyFile)).rejects.toThrow("[MILLPOND_E_NOT_FOUND]");
    const again = await PostgresStore.open({ url, poolKey });
    onTestFinished(() => again.close());
    expect(await contentOf(again)).toEqual(before);
  });
});
