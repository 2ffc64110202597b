// SPDX-License-Identifier: Apache-2.0

// A backup is one file: the database of the state directory at one moment. A separate table in it holds the tokens and
// the authority, which are files beside the database; they are sealed with the pool key, which is not in the backup.

import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { backup, DatabaseSync } from "node:sqlite";
import { errorCodeOf, millpondError } from "@millpond/api";
import { integer } from "../rows.ts";
import { PoolKey, poolKeyPath } from "../../state/pool-key.ts";
import type { Backup } from "../../state/store.ts";
import { databaseFileName, openStopped } from "../state-file.ts";

/** The purpose with which a file is sealed. */
export function filePurpose(path: string): string {
  return `file/${path}`;
}

/** Files of a state directory that a pool needs to continue: agents know its authority and their token. */
const filesBeside = /^(?:[a-z-]+\.token|tls\/[^/]+)$/;

export interface BackupOptions {
  /** The state directory. */
  readonly directory: string;
  readonly poolKey: PoolKey;
  /** A file that does not exist. */
  readonly to: string;
}

/**
 * Writes a backup of a database that may be written meanwhile: the backup includes everything that was committed when
 * it finished.
 *
 * @throws MILLPOND_E_ALREADY_EXISTS, MILLPOND_E_STATE_FULL, MILLPOND_E_INVALID
 */
export async function writeBackup(
  source: DatabaseSync,
  { directory, poolKey, to }: BackupOptions,
): Promise<Backup> {
  if (existsSync(to)) {
    throw millpondError("MILLPOND_E_ALREADY_EXISTS", `${to} exists, and backups overwrite nothing`, {
      remedy: "Name another file, or remove it.",
    });
  }
  const making = join(dirname(to), `.${basename(to)}.${process.pid}`);
  try {
    // Created first, because SQLite would make it world-readable: it holds names of users and claims.
    closeSync(openSync(making, "wx", 0o600));
    await backup(source, making);
    const revision = addFiles(making, directory, poolKey);
    flush(making);
    renameSync(making, to);
    flush(dirname(to));
    return { path: to, bytes: statSync(to).size, revision };
  } catch (cause) {
    rmSync(making, { force: true });
    throw writeError(cause, `the backup ${to} could not be written`);
  }
}

/** Backs up the state directory of a stopped controller. */
export async function backUpStopped(directory: string, to: string): Promise<Backup> {
  using source = openStopped(directory);
  return await writeBackup(source, { directory, poolKey: PoolKey.read(poolKeyPath(directory)), to });
}

/** @returns The revision of the state in it. */
function addFiles(path: string, directory: string, poolKey: PoolKey): number {
  using database = new DatabaseSync(path);
  // A single, complete file.
  database.exec("PRAGMA journal_mode = DELETE");
  database.exec("CREATE TABLE sealed_files (path TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT");
  const insert = database.prepare("INSERT INTO sealed_files VALUES (?, ?)");
  for (const file of listFiles(directory)) {
    insert.run(file, poolKey.seal(filePurpose(file), readFileSync(join(directory, file))));
  }
  return integer(database.prepare("SELECT revision FROM pool").get() ?? {}, "revision");
}

function listFiles(directory: string): string[] {
  const list = (folder: string) =>
    existsSync(join(directory, folder)) ? readdirSync(join(directory, folder), { withFileTypes: true }) : [];
  const names = [
    ...list(".")
      .filter((entry) => entry.isFile())
      .map(({ name }) => name),
    ...list("tls")
      .filter((entry) => entry.isFile())
      .map(({ name }) => `tls/${name}`),
  ];
  return names.filter((name) => filesBeside.test(name));
}

export function isFileBeside(path: string): boolean {
  return filesBeside.test(path) && !path.includes("..");
}

/** Flushes a file or folder to the disk. */
export function flush(path: string): void {
  const file = openSync(path, "r");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** Readable for its owner only. */
export function makePrivate(path: string): void {
  chmodSync(path, 0o600);
}

export function writeError(cause: unknown, what: string): unknown {
  if (errorCodeOf(cause) !== undefined) {
    return cause;
  }
  const message = cause instanceof Error ? cause.message : String(cause);
  const isFull =
    cause instanceof Error &&
    (("code" in cause && cause.code === "ENOSPC") ||
      ("errcode" in cause && Number(cause.errcode) % 256 === 13));
  return millpondError(isFull ? "MILLPOND_E_STATE_FULL" : "MILLPOND_E_INVALID", `${what}: ${message}`, {
    cause,
  });
}

/** The path of the database in a state directory. */
export function databasePath(directory: string): string {
  return join(directory, databaseFileName);
}
