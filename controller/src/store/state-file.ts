// SPDX-License-Identifier: Apache-2.0

// The file of a state directory that holds the state, and what can be wrong with it.

import { existsSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { errorCodeOf, formatBytes, millpondError } from "@millpond/api";
import { missingMigrations, schemaVersion } from "./migrations.ts";

/** File name of the database in the state directory. */
export const databaseFileName = "controller.sqlite";

/**
 * Opens the file of a stopped controller with the controller's lock, so that none can start meanwhile, but changes
 * nothing.
 *
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_STATE_LOCKED, MILLPOND_E_STATE_NEWER, MILLPOND_E_STATE_BROKEN
 */
export function openStopped(directory: string): DatabaseSync {
  const path = join(directory, databaseFileName);
  if (!existsSync(path)) {
    throw millpondError(
      "MILLPOND_E_NOT_FOUND",
      `there is no state in ${directory}: it has no ${databaseFileName}`,
      {
        remedy: "Name the directory that `millpond controller --state` is given.",
      },
    );
  }
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { timeout: 0 });
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT");
    const missing = missingMigrations("sqlite", schemaVersion(database));
    if (missing.length > 0) {
      throw millpondError(
        "MILLPOND_E_STATE_BROKEN",
        `the state in ${path} was written by an older version, whose schema is ${missing.length} steps behind`,
        { remedy: "Start a controller of this version on it once, and stop it again." },
      );
    }
    return database;
  } catch (cause) {
    database?.close();
    throw stateError(cause, `the state in ${path} cannot be opened`);
  }
}

/** Converts errors of SQLite into ours; leaves ours unchanged. */
export function stateError(cause: unknown, what: string): unknown {
  if (errorCodeOf(cause) !== undefined) {
    return cause;
  }
  const message = cause instanceof Error ? cause.message : String(cause);
  return isBusy(cause)
    ? millpondError("MILLPOND_E_STATE_LOCKED", `${what}: another process holds it`, { cause })
    : millpondError("MILLPOND_E_STATE_BROKEN", `${what}: ${message}`, { cause });
}

/** With current numbers. */
export function fullError(what: string, directory: string, cause: unknown): Error {
  const { bavail, blocks, bsize } = statfsSync(directory, { bigint: true });
  return millpondError(
    "MILLPOND_E_STATE_FULL",
    `${what}: ${formatBytes(bavail * bsize)} of ${formatBytes(blocks * bsize)} are free on the disk of ${directory}`,
    { cause },
  );
}

// SQLite's result codes.
const sqliteBusy = 5;
const sqliteFull = 13;

function isBusy(error: unknown): boolean {
  return resultCode(error) === sqliteBusy;
}

export function isFull(error: unknown): boolean {
  return resultCode(error) === sqliteFull;
}

/** Only the primary result code matters here. */
function resultCode(error: unknown): number | undefined {
  return error instanceof Error && "errcode" in error ? Number(error.errcode) % 256 : undefined;
}
