// SPDX-License-Identifier: Apache-2.0

// Behaviour specific to this store; common behaviour is tested in store.test.ts.

import { generateKeyPairSync } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { ticketKeyId } from "@millpond/api";
import { describe, expect, onTestFinished, test } from "vitest";
import { allocation, changes, claim } from "../testing/records.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { defaultClaimSpec } from "../domain/claim-spec.ts";
import { migrateSqlite, schemaVersion } from "./migrations.ts";
import { SqliteStore } from "./sqlite-store.ts";
import { databaseFileName } from "./state-file.ts";

const candidate = { id: "4f6b1c70-0000-4000-8000-000000000000", url: "http://127.0.0.1:7170" };

function open(directory = makeTestDirectory()): SqliteStore {
  const store = SqliteStore.open({ directory });
  onTestFinished(() => store.close().catch(() => undefined));
  return store;
}

test("a database of the first version is brought up to date with all that is in it", async () => {
  const directory = makeTestDirectory();
  const database = new DatabaseSync(join(directory, databaseFileName), { enableForeignKeyConstraints: true });
  const first = new URL("./migrations/sqlite/000001_initial.sql", import.meta.url);
  database.exec(readFileSync(first, "utf8"));
  const { privateKey } = generateKeyPairSync("ed25519");
  const secret = privateKey.export({ format: "der", type: "pkcs8" });
  database.exec(`PRAGMA user_version = 1;
    INSERT INTO pool VALUES (1, 'an-identity', 9, 4, x'${secret.toString("hex")}');
    INSERT INTO nodes VALUES ('node-a', 'http://127.0.0.1:1', '0.1.0', 'host', 'boot', 1, 5, 100);
    INSERT INTO devices VALUES ('node-a', 'GPU-0', 0, 'H200', 'nvidia', 1000000, '', '9.0', 132, '', 13000, 1, '');
    INSERT INTO claims VALUES ('old', 3, 1, 600000, 0, 40, 'ann', 30, 1, 'bound', '', 4, 100, 101, NULL);
    INSERT INTO claims VALUES ('waits', 4, 2, 0, 50, 0, '', 15, 0, 'pending', 'no room', 4, 102, NULL, NULL);
    INSERT INTO allocations VALUES ('old', 'node-a', 4, NULL);
    INSERT INTO virtual_gpus VALUES ('old', 0, 'node-a', 'GPU-0', 600000, 40);`);
  database.close();

  const store = open(directory);
  const state = await store.load();
  expect(state).toMatchObject({
    signingKeys: [{ id: ticketKeyId(privateKey), retiresAt: null, isRevoked: false }],
    identity: "an-identity",
    revision: 9,
    nodes: [{ name: "node-a", isCordoned: true, labels: {}, devices: [{ isCordoned: false }] }],
    claims: [
      {
        ...defaultClaimSpec,
        name: "old",
        memoryBytes: 600_000n,
        computePercent: 40,
        owner: "ann",
        leaseSeconds: 30,
        isSessionBound: true,
        state: "bound",
        waitingSince: null,
      },
      { ...defaultClaimSpec, name: "waits", gpus: 2, memoryPercent: 50, state: "pending", waitingSince: 102 },
    ],
    allocations: [
      {
        claim: "old",
        epoch: 4,
        grantedAt: 101,
        devices: [{ uuid: "GPU-0", memoryBytes: 600_000n, computePercent: 40 }],
      },
    ],
  });
  const { term } = await store.campaign(candidate);
  const more = { epoch: 5, devices: [{ uuid: "GPU-0", memoryBytes: 500_000n, computePercent: 1 }] };
  const bound = claim("waits", { ...state.claims[1], state: "bound", waitingSince: null, version: 10 });
  const overfull = changes(10, { epoch: 5, claims: [bound], allocations: [allocation("waits", more)] });
  await expect(store.commit(overfull, term)).rejects.toThrow(/over-allocated/);
});

describe("opening", () => {
  test("makes files that only the owner can read", () => {
    const directory = makeTestDirectory();
    open(directory);
    for (const name of readdirSync(directory)) {
      expect([name, statSync(join(directory, name)).mode & 0o077]).toEqual([name, 0]);
    }
  });

  test("migrating again changes nothing", async () => {
    const directory = makeTestDirectory();
    const store = open(directory);
    const { identity } = await store.load();
    await store.close();
    const database = new DatabaseSync(join(directory, databaseFileName));
    const before = { version: schemaVersion(database), schema: readSchema(database) };
    migrateSqlite(database);
    expect({ version: schemaVersion(database), schema: readSchema(database) }).toEqual(before);
    expect(before.version).toBeGreaterThan(0);
    database.close();
    expect((await open(directory).load()).identity).toBe(identity);
  });

  test("a newer schema is refused and left alone", async () => {
    const directory = makeTestDirectory();
    await open(directory).close();
    const path = join(directory, databaseFileName);
    const database = new DatabaseSync(path);
    database.exec("PRAGMA user_version = 999");
    database.close();
    expect(() => open(directory)).toThrow(/the state has schema version 999, .*\[MILLPOND_E_STATE_NEWER\]$/);
    const after = new DatabaseSync(path);
    expect(schemaVersion(after)).toBe(999);
    after.close();
  });

  test("a second store on the same directory is refused, also in the same process", async () => {
    const directory = makeTestDirectory();
    const store = open(directory);
    expect(() => open(directory)).toThrow(/another process holds it\. .*\[MILLPOND_E_STATE_LOCKED\]$/);
    await store.commit(changes(1), (await store.campaign(candidate)).term);
    await store.close();
    expect((await open(directory).load()).revision).toBe(1);
  });

  test("something else than a database is refused", () => {
    const directory = makeTestDirectory();
    writeFileSync(
      join(directory, databaseFileName),
      "not a database, but long enough to be looked at as one".repeat(20),
    );
    expect(() => open(directory)).toThrow(
      /cannot be opened: file is not a database\. .*\[MILLPOND_E_STATE_BROKEN\]$/,
    );
  });

  test("a directory that cannot be used is refused", () => {
    const directory = join(makeTestDirectory(), "missing");
    expect(() => open(directory)).toThrow(/\[MILLPOND_E_STATE_BROKEN\]$/);
  });

  test("a migration that was cut off half-way is begun again", async () => {
    const directory = makeTestDirectory();
    const path = join(directory, databaseFileName);
    const database = new DatabaseSync(path);
    database.exec("PRAGMA journal_mode = WAL");
    database.exec("BEGIN; CREATE TABLE pool (id INTEGER); PRAGMA user_version = 1");
    const copy = join(makeTestDirectory(), "copy");
    mkdirSync(copy);
    for (const name of readdirSync(directory)) {
      copyFileSync(join(directory, name), join(copy, name));
      chmodSync(join(copy, name), 0o600);
    }
    database.close();
    expect((await open(copy).load()).revision).toBe(0);
  });
});

function readSchema(database: DatabaseSync): unknown[] {
  return database.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").all();
}
