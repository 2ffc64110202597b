// SPDX-License-Identifier: Apache-2.0

import { DatabaseSync } from "node:sqlite";
import { makePrivateFile } from "@millpond/platform";

/** Another process holds the lock. */
export class LockHeldError extends Error {
  readonly path: string;

  constructor(path: string) {
    super(`${path} is locked by another process`);
    this.name = "LockHeldError";
    this.path = path;
  }
}

/**
 * Opens a small database that only one process can have open at a time. The kernel drops the lock with the process,
 * however it ends, so there is no stale lock to recover from, and child processes do not inherit it.
 *
 * `schema` must be idempotent. Throws LockHeldError when another process has the file open.
 */
export function openLockedDatabase(path: string, schema: string): DatabaseSync {
  makePrivateFile(path);
  const database = new DatabaseSync(path);
  try {
    // The first write takes the lock and, in exclusive mode, keeps it until the database is closed. Contents survive
    // the end of the process without a flush to disk; after a crash of the machine no worker is left to which they
    // matter.
    database.exec(
      `PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
       BEGIN IMMEDIATE; ${schema}; COMMIT;`,
    );
    return database;
  } catch (error) {
    database.close();
    if (error instanceof Error && "errcode" in error && error.errcode === 5) throw new LockHeldError(path);
    throw error;
  }
}
