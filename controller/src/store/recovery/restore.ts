// SPDX-License-Identifier: Apache-2.0

// Restores an earlier state. Agents ignore anything older than the newest term that they have seen, and know grants
// that the backup lacks: terms, epochs and revisions continue far beyond any that can have been issued since
// (docs/decisions/0027-a-restored-state-adopts-what-runs.md).

import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { errorCodeOf, millpondError } from "@millpond/api";
import { makeFolders } from "@millpond/platform";
import { PoolKey, poolKeyPath } from "../../state/pool-key.ts";
import { openSigningKey } from "../../state/signing-keys.ts";
import { databasePath, filePurpose, flush, isFileBeside, makePrivate, writeError } from "./backup.ts";
import { migrateSqlite, schemaVersion } from "../migrations.ts";
import { blob, integer, type Row, text, toSigningKey } from "../rows.ts";
import { stateError } from "../state-file.ts";

export interface RestoreOptions {
  /** A file written by `writeBackup`. */
  readonly from: string;
  /** State directory of a stopped controller; created if it does not exist. */
  readonly to: string;
  /** Unix milliseconds. */
  readonly now: number;
  /** File of the pool key with which the backup is sealed. Default: that of the state directory. */
  readonly keyFile?: string | undefined;
  /**
   * The pool key is lost: omits the secrets sealed with it. The pool gets new keys, tokens and a new
   * authority. Default false.
   */
  readonly withNewKeys?: boolean | undefined;
}

/** The restored state. */
export interface Restored {
  readonly identity: string;
  readonly claims: number;
  readonly nodes: number;
  /** The values from which terms, epochs and revisions continue. */
  readonly resumedAt: number;
  /** Where the previous state was moved; undefined: there was none. */
  readonly replaced: string | undefined;
}

/**
 * More than a pool can issue between a backup and its restore. If the clock is right, the time is greater, so that two
 * restores of one backup do not overlap either.
 */
const leastJump = 2_000_000_000;

/** The next values for a state that has used these. */
export function resumptionOf(pool: Row, now: number, seen = 0): number {
  const known = Math.max(integer(pool, "term"), integer(pool, "epoch"), integer(pool, "revision"), seen);
  return Math.max(known + leastJump, now);
}

/**
 * Restores a backup into a state directory, completely or not at all. The previous content is kept beside it.
 *
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_STATE_LOCKED while a controller runs on the directory, MILLPOND_E_STATE_NEWER,
 * MILLPOND_E_STATE_BROKEN if the file is not a backup, MILLPOND_E_STATE_FULL, MILLPOND_E_POOL_KEY
 */
export function restoreBackup({ from, to, now, keyFile, withNewKeys = false }: RestoreOptions): Restored {
  if (!existsSync(from)) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `there is no backup ${from}`, {
      remedy: "Name a file that `millpond backup` has written.",
    });
  }
  makeFolders(to, 0o700);
  const target = databasePath(to);
  const lock = lockState(target);
  const seen = lock?.seen ?? 0;
  const making = join(to, ".restoring.sqlite");
  try {
    rmSync(making, { force: true });
    copyFileSync(from, making);
    makePrivate(making);
    const readKey = () => PoolKey.read(keyFile ?? poolKeyPath(to));
    const restored = prepare(making, { now, seen, from, withNewKeys, readKey });
    for (const { path, content } of restored.files) {
      writeBeside(join(to, path), content);
    }
    flush(making);
    const replaced = existsSync(target) ? keepBefore(to, now) : undefined;
    if (keyFile !== undefined && resolve(keyFile) !== resolve(poolKeyPath(to))) {
      writeBeside(poolKeyPath(to), readFileSync(keyFile));
    }
    // Closing removes the write-ahead log at its path, so it comes before there is another.
    lock?.close();
    linkSync(making, target);
    rmSync(making);
    flush(to);
    const { identity, claims, nodes, resumedAt } = restored;
    return { identity, claims, nodes, resumedAt, replaced };
  } catch (cause) {
    lock?.close();
    rmSync(making, { force: true });
    throw writeError(cause, `the backup ${from} could not be restored to ${to}`);
  }
}

interface Lock {
  /** The greatest numbers that the existing state has issued. */
  readonly seen: number;
  /** Idempotent. */
  readonly close: () => void;
}

/** Locks controllers out of the existing state, and reads the highest numbers that it has issued. */
function lockState(path: string): Lock | undefined {
  if (!existsSync(path)) {
    return undefined;
  }
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { timeout: 0 });
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT");
    const pool = database.prepare("SELECT * FROM pool").get();
    const seen = pool === undefined ? 0 : resumptionOf(pool, 0) - leastJump;
    const open = database;
    return { seen, close: () => (open.isOpen ? open.close() : undefined) };
  } catch (cause) {
    database?.close();
    const error = stateError(cause, `the state in ${path} cannot be replaced`);
    if (errorCodeOf(error) === "MILLPOND_E_STATE_BROKEN") {
      // An unreadable state is a reason for a restore.
      return { seen: 0, close: () => undefined };
    }
    throw error;
  }
}

interface Prepared extends Omit<Restored, "replaced"> {
  readonly files: readonly { readonly path: string; readonly content: Uint8Array }[];
}

interface Preparation extends Pick<RestoreOptions, "now" | "from"> {
  readonly seen: number;
  readonly withNewKeys: boolean;
  readonly readKey: () => PoolKey;
}

function prepare(path: string, { now, seen, from, withNewKeys, readKey }: Preparation): Prepared {
  try {
    using database = new DatabaseSync(path);
    const broken = database.prepare("PRAGMA integrity_check").get()?.["integrity_check"];
    if (broken !== "ok" || schemaVersion(database) === 0) {
      throw millpondError("MILLPOND_E_STATE_BROKEN", `${from} is not a backup, or damaged`);
    }
    migrateSqlite(database);
    if (withNewKeys) {
      database.exec(forgetKeys(Math.floor(now / 1000)));
    } else {
      for (const row of database.prepare("SELECT * FROM signing_keys WHERE sealed <> ''").all()) {
        openSigningKey(readKey(), toSigningKey(row));
      }
    }
    const files = [
      // Backups of earlier versions have this table.
      ...readFiles(database, "backup_files"),
      ...(withNewKeys
        ? []
        : readFiles(database, "sealed_files").map((file) => ({
            path: file.path,
            content: readKey().unseal(filePurpose(file.path), file.content),
          }))),
    ];
    const strange = files.find((file) => !isFileBeside(file.path));
    if (strange !== undefined) {
      throw millpondError(
        "MILLPOND_E_STATE_BROKEN",
        `${from} has a file ${strange.path}, which no backup has`,
      );
    }
    const pool = database.prepare("SELECT * FROM pool").get() ?? {};
    const resumedAt = resumptionOf(pool, now, seen);
    database.exec("BEGIN IMMEDIATE");
    database.exec("DROP TABLE IF EXISTS backup_files; DROP TABLE IF EXISTS sealed_files");
    database
      .prepare(
        "UPDATE pool SET restored_epoch = epoch, resumed_at = :at, term = :at, epoch = :at, revision = :at",
      )
      .run({ at: resumedAt });
    database.exec("COMMIT");
    const count = (table: string) =>
      integer(database.prepare(`SELECT count(*) AS count FROM ${table}`).get() ?? {}, "count");
    const identity = text(pool, "identity");
    return { identity, claims: count("claims"), nodes: count("nodes"), resumedAt, files };
  } catch (cause) {
    throw stateError(cause, `the backup ${from} cannot be read`);
  }
}

type BackedUpFile = Prepared["files"][number];

function readFiles(database: DatabaseSync, table: string): BackedUpFile[] {
  const exists = database.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?").get(table);
  return exists === undefined
    ? []
    : database
        .prepare(`SELECT path, content FROM ${table}`)
        .all()
        .map((row) => ({ path: text(row, "path"), content: blob(row, "content") }));
}

/**
 * Keeps only what is needed to read earlier tickets of the signing keys; a controller creates a new key when it starts.
 */
function forgetKeys(nowSeconds: number): string {
  return `UPDATE signing_keys SET sealed = '', retires_at = coalesce(retires_at, ${nowSeconds})`;
}

function writeBeside(path: string, content: Uint8Array): void {
  makeFolders(dirname(path), 0o700);
  writeFileSync(`${path}.new`, content, { mode: 0o600, flush: true });
  renameSync(`${path}.new`, path);
}

/** @returns The folder to which the existing state was moved. */
function keepBefore(directory: string, now: number): string {
  const kept = join(directory, `before-restore-${new Date(now).toISOString().replace(/[:.]/g, "-")}`);
  mkdirSync(kept, { mode: 0o700 });
  if (existsSync(poolKeyPath(directory))) {
    copyFileSync(poolKeyPath(directory), poolKeyPath(kept));
  }
  for (const suffix of ["", "-wal", "-shm"]) {
    const path = `${databasePath(directory)}${suffix}`;
    if (existsSync(path)) {
      renameSync(path, `${databasePath(kept)}${suffix}`);
    }
  }
  return kept;
}

/**
 * Marks a database, restored by its own tools, as a restored state.
 *
 * @param url `postgres://user:password@host:port/database`.
 * @throws MILLPOND_E_STORE_UNREACHABLE, MILLPOND_E_STATE_NEWER, MILLPOND_E_NOT_FOUND where it holds no state
 */
export async function resumeDatabase(
  url: string,
  { now, withNewKeys = false }: Pick<RestoreOptions, "now" | "withNewKeys">,
): Promise<Omit<Restored, "replaced">> {
  const { PostgresStore } = await import("../postgres-store.ts");
  const { PostgresConnections } = await import("../postgres-connections.ts");
  await (await PostgresStore.open({ url })).close();
  const connections = new PostgresConnections(url);
  try {
    return await connections.transaction("read and write", async (session) => {
      // A running leader would not notice that the state has been replaced.
      const [leader = {}] = await session.query("SELECT url FROM leader WHERE expires_at > now() FOR UPDATE");
      if (leader["url"] !== undefined) {
        throw millpondError(
          "MILLPOND_E_STATE_LOCKED",
          `the controller at ${text(leader, "url")} is the leader on this database`,
          { remedy: "Stop the controllers first." },
        );
      }
      const [pool = {}] = await session.query("SELECT * FROM pool FOR UPDATE");
      if (integer(pool, "revision") === 0 && integer(pool, "term") === 0) {
        throw millpondError("MILLPOND_E_NOT_FOUND", "the database holds no state", {
          remedy: "Restore it with PostgreSQL's tools first, then repeat this command.",
        });
      }
      const resumedAt = resumptionOf(pool, now);
      await session.query(
        "UPDATE pool SET restored_epoch = epoch, resumed_at = $1, term = $1, epoch = $1, revision = $1",
        [resumedAt],
      );
      if (withNewKeys) {
        await session.query(forgetKeys(Math.floor(now / 1000)));
      }
      // Followers reload the full state.
      await session.query("DELETE FROM changes");
      const count = async (table: string) =>
        integer((await session.query(`SELECT count(*) AS count FROM ${table}`))[0] ?? {}, "count");
      const identity = text(pool, "identity");
      return { identity, claims: await count("claims"), nodes: await count("nodes"), resumedAt };
    });
  } finally {
    await connections.close();
  }
}
