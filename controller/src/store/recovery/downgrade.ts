// SPDX-License-Identifier: Apache-2.0

// Downgrades the state of a stopped controller to the schema of the previous release, whose controller then continues
// with it: claims, grants, queues, tenants and tokens stay. State that the previous release does not know is lost.

import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { millpondError } from "@millpond/api";
import { PoolKey, poolKeyPath } from "../../state/pool-key.ts";
import { openSigningKey } from "../../state/signing-keys.ts";
import { writeBackup } from "./backup.ts";
import { previousSchema, schemaVersion, stepsBack } from "../migrations.ts";
import { PostgresConnections } from "../postgres-connections.ts";
import { integer, type Row, text, toSigningKey } from "../rows.ts";
import { openStopped, stateError } from "../state-file.ts";

const currentKey = "SELECT * FROM signing_keys WHERE retires_at IS NULL";

/**
 * Downgrades the state in a directory, completely or not at all, after a backup.
 *
 * @param nowMs Unix milliseconds: names the backup.
 * @returns The path of that backup.
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_STATE_LOCKED while a controller runs on the directory, MILLPOND_E_STATE_NEWER,
 * MILLPOND_E_STATE_BROKEN where it has an older schema, MILLPOND_E_STATE_FULL, MILLPOND_E_POOL_KEY
 */
export async function downgradeDirectory(directory: string, nowMs: number): Promise<string> {
  using database = openStopped(directory);
  const poolKey = PoolKey.read(poolKeyPath(directory));
  const at = new Date(nowMs).toISOString().replace(/[:.]/g, "-");
  const { path } = await writeBackup(database, {
    directory,
    poolKey,
    to: join(directory, `before-downgrade-${at}.backup`),
  });
  try {
    takeBack(database, poolKey);
  } catch (cause) {
    throw stateError(cause, `the state in ${directory} cannot be downgraded`);
  }
  return path;
}

function takeBack(database: DatabaseSync, poolKey: PoolKey): void {
  const key = unsealed(poolKey, database.prepare(currentKey).get());
  database.exec("BEGIN IMMEDIATE");
  try {
    database.prepare("UPDATE pool SET ticket_key = ?").run(key);
    for (const sql of stepsBack("sqlite", schemaVersion(database))) database.exec(sql);
    database.exec(`PRAGMA user_version = ${previousSchema.sqlite}`);
    database.exec("COMMIT");
  } catch (error) {
    if (database.isTransaction) database.exec("ROLLBACK");
    throw error;
  }
}

/**
 * Downgrades the state in a database, completely or not at all.
 *
 * @param url `postgres://user:password@host:port/database`.
 * @param keyFile File of the pool key, with which the signing key is sealed.
 * @throws MILLPOND_E_STORE_UNREACHABLE, MILLPOND_E_NOT_FOUND where it holds no state, MILLPOND_E_STATE_LOCKED while a controller
 * leads, MILLPOND_E_STATE_NEWER, MILLPOND_E_POOL_KEY
 */
export async function downgradeDatabase(url: string, keyFile: string): Promise<void> {
  const poolKey = PoolKey.read(keyFile);
  const connections = new PostgresConnections(url);
  try {
    await connections.transaction("read and write", async (session) => {
      const [{ tables } = {}] = await session.query("SELECT to_regclass('schema_versions')::text AS tables");
      const [row = {}] =
        tables === null
          ? []
          : await session.query("SELECT coalesce(max(version), 0) AS version FROM schema_versions");
      const version = tables === null ? 0 : integer(row, "version");
      if (version <= previousSchema.postgres) {
        throw millpondError(
          "MILLPOND_E_NOT_FOUND",
          `the database holds no state of this release: its schema version is ${version}`,
        );
      }
      const [leader] = await session.query("SELECT url FROM leader WHERE expires_at > now() FOR UPDATE");
      if (leader !== undefined) {
        throw millpondError(
          "MILLPOND_E_STATE_LOCKED",
          `the controller at ${text(leader, "url")} is the leader on this database`,
          { remedy: "Stop all controllers first." },
        );
      }
      const steps = stepsBack("postgres", version);
      const [key] = await session.query(currentKey);
      // Followers reload the full state, and the previous leader can no longer write.
      await session.query("UPDATE pool SET ticket_key = $1, term = term + 1", [unsealed(poolKey, key)]);
      await session.query("DELETE FROM changes");
      for (const sql of steps) await session.query(sql);
      await session.query("DELETE FROM schema_versions WHERE version > $1", [previousSchema.postgres]);
    });
  } finally {
    await connections.close();
  }
}

/** The signing key as the previous release stores it: PKCS #8, DER. */
function unsealed(poolKey: PoolKey, row: Row | undefined): Buffer {
  if (row === undefined) {
    throw millpondError("MILLPOND_E_STATE_BROKEN", "the state has no signing key that is current");
  }
  return openSigningKey(poolKey, toSigningKey(row)).export({ format: "der", type: "pkcs8" });
}
