// SPDX-License-Identifier: Apache-2.0

import { readdirSync, readFileSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { millpondError } from "@millpond/api";

export interface Migration {
  readonly version: number;
  readonly sql: string;
}

/** The database for which a migration is written: the name of its folder. */
type Dialect = "sqlite" | "postgres";

const migrationsUrl = new URL("./migrations/", import.meta.url);

/** Schema versions of the previous release (commit c28aa69), to which a state can be downgraded. */
export const previousSchema: Readonly<Record<Dialect, number>> = { sqlite: 10, postgres: 7 };

/**
 * Brings the schema up to date. The number of the last migration is the database's `user_version`; each one is applied
 * whole or not at all.
 *
 * @throws MILLPOND_E_STATE_NEWER when a newer version of Millpond has written the database.
 */
export function migrateSqlite(database: DatabaseSync): void {
  for (const { version, sql } of missingMigrations("sqlite", schemaVersion(database))) {
    database.exec("BEGIN IMMEDIATE");
    try {
      database.exec(sql);
      database.exec(`PRAGMA user_version = ${version}`);
      database.exec("COMMIT");
    } catch (error) {
      if (database.isTransaction) {
        database.exec("ROLLBACK");
      }
      throw error;
    }
  }
}

export function schemaVersion(database: DatabaseSync): number {
  return Number(database.prepare("PRAGMA user_version").get()?.["user_version"]);
}

/**
 * The migrations that a database of that schema version lacks, in order.
 *
 * @throws MILLPOND_E_STATE_NEWER
 */
export function missingMigrations(dialect: Dialect, current: number): Migration[] {
  const migrations = readMigrations(new URL(`${dialect}/`, migrationsUrl));
  const newest = migrations.length;
  if (current > newest) {
    throw millpondError(
      "MILLPOND_E_STATE_NEWER",
      `the state has schema version ${current}, this controller knows versions up to ${newest}`,
      {
        remedy:
          "Start the newer release again, or downgrade the state with its `millpond downgrade` before this one starts.",
      },
    );
  }
  return migrations.slice(current);
}

/**
 * The steps that downgrade a database of that schema version to that of the previous release, in order: first those
 * that undo each migration, then the functions as the remaining migrations define them.
 *
 * @throws MILLPOND_E_STATE_NEWER
 */
export function stepsBack(dialect: Dialect, current: number): string[] {
  missingMigrations(dialect, current);
  const folder = new URL(`${dialect}/`, migrationsUrl);
  const previous = previousSchema[dialect];
  const undoing = migrationFiles(new URL("down/", folder))
    .filter((name) => Number.parseInt(name, 10) > previous && Number.parseInt(name, 10) <= current)
    .toReversed()
    .map((name) => readFileSync(new URL(`down/${name}`, folder), "utf8"));
  if (undoing.length !== Math.max(0, current - previous)) {
    throw millpondError("MILLPOND_E_INTERNAL", `a migration after ${previous} has no step back`);
  }
  const functions = new Map<string, string>();
  for (const { sql } of readMigrations(folder).slice(0, previous)) {
    for (const [definition, name = ""] of sql.matchAll(
      /CREATE (?:OR REPLACE )?FUNCTION (\w+)\([^]*?\$\$[^]*?\$\$;/g,
    )) {
      functions.set(name, definition.replace(/^CREATE FUNCTION/, "CREATE OR REPLACE FUNCTION"));
    }
  }
  return [...undoing, ...functions.values()];
}

function migrationFiles(folder: URL): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".sql"))
    .sort();
}

function readMigrations(folder: URL): Migration[] {
  const names = migrationFiles(folder);
  return names.map((name, position) => {
    const version = Number(/^(\d{6})_[a-z0-9_]+\.sql$/.exec(name)?.[1]);
    if (version !== position + 1) {
      throw millpondError("MILLPOND_E_INTERNAL", `the migration ${name} is not number ${position + 1}`);
    }
    return { version, sql: readFileSync(new URL(name, folder), "utf8") };
  });
}
