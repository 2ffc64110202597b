// SPDX-License-Identifier: Apache-2.0

// Copies the state in a file into a PostgreSQL database, which controllers then share.

import type { DatabaseSync } from "node:sqlite";
import { millpondError } from "@millpond/api";
import type { Session } from "./postgres-connections.ts";
import { blob, integer, type Row, text } from "./rows.ts";
import { openStopped } from "./state-file.ts";

export interface StoreCopy {
  /** The state directory of the stopped controller. */
  readonly from: string;
  /** `postgres://user:password@host:port/database`, which holds no state yet. */
  readonly to: string;
}

/** How many rows of each table were copied. */
export type CopiedRows = ReadonlyMap<string, number>;

/** The tables that both kinds of database have, with the same columns, each after those that it references. */
const tables = [
  "nodes",
  "devices",
  "removed_nodes",
  "claims",
  "allocations",
  "virtual_gpus",
  "queues",
  "tenants",
  "tokens",
  "signing_keys",
  "logins",
  "events",
  "usage",
  "audit",
] as const;

/** Tables whose rows the database numbers. */
const numbered = ["usage", "audit"] as const;

/** The number of rows copied at once. */
const batch = 1000;

/**
 * How many terms the copy is ahead of its original. Each start of a controller takes the next term; if the original is
 * started after all, agents that have seen the copy's term ignore it, however often it is started.
 */
const termsAhead = 1_000_000;

/**
 * Copies everything, or nothing. The file stays as it is, and locked for as long as it takes.
 *
 * @throws MILLPOND_E_STATE_LOCKED while a controller runs on the file; MILLPOND_E_STATE_NEWER and
 *   MILLPOND_E_STATE_BROKEN where it is of another version; MILLPOND_E_ALREADY_EXISTS where the database holds a state;
 *   MILLPOND_E_NOT_FOUND, MILLPOND_E_INVALID, MILLPOND_E_STORE_UNREACHABLE
 */
export async function copyStore({ from, to }: StoreCopy): Promise<CopiedRows> {
  if (/^postgres(?:ql)?:/.test(from)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "a state is copied from a file into a database, not out of one",
      {
        remedy: "Keep the database: one controller alone may have its state there, too.",
      },
    );
  }
  using source = openStopped(from);
  // Loaded on demand, as in the controller.
  const { PostgresStore } = await import("./postgres-store.ts");
  const { PostgresConnections } = await import("./postgres-connections.ts");
  // Creates the tables. The rows of a new state are replaced by those of the file.
  await (await PostgresStore.open({ url: to })).close();
  const connections = new PostgresConnections(to);
  try {
    return await connections.transaction("read and write", async (session) => {
      await refuseState(session);
      const copied = new Map<string, number>();
      for (const table of tables) {
        copied.set(table, await copyTable(source, session, table));
      }
      for (const table of numbered) {
        await session.query(
          `SELECT setval(pg_get_serial_sequence($1, 'id'), greatest(max(id), 1), max(id) IS NOT NULL) FROM ${table}`,
          [table],
        );
      }
      await takeIdentity(source, session);
      return copied;
    });
  } finally {
    await connections.close();
  }
}

/** A controller that would become leader now waits until the copy is complete. */
async function refuseState(session: Session): Promise<void> {
  await session.query("SELECT FROM leader FOR UPDATE");
  const [pool = {}] = await session.query("SELECT revision, term FROM pool FOR UPDATE");
  const [revision, term] = [integer(pool, "revision"), integer(pool, "term")];
  if (revision > 0 || term > 0) {
    throw millpondError(
      "MILLPOND_E_ALREADY_EXISTS",
      `the database holds a state, which has been changed ${revision} times`,
      { remedy: "Give an empty database: existing data is not overwritten." },
    );
  }
}

async function copyTable(source: DatabaseSync, session: Session, table: string): Promise<number> {
  await refuseOtherColumns(source, session, table);
  let count = 0;
  const insert = async (rows: readonly Row[]): Promise<void> => {
    await session.query(
      `INSERT INTO ${table} OVERRIDING SYSTEM VALUE
       SELECT * FROM jsonb_populate_recordset(NULL::${table}, $1::jsonb)`,
      [JSON.stringify(rows)],
    );
    count += rows.length;
  };
  let rows: Row[] = [];
  // In the order in which they were written, because checks of a row refer to rows before it.
  for (const row of source.prepare(`SELECT * FROM ${table} ORDER BY rowid`).iterate()) {
    rows.push(row);
    if (rows.length === batch) {
      await insert(rows);
      rows = [];
    }
  }
  if (rows.length > 0) {
    await insert(rows);
  }
  return count;
}

/** Unknown columns would be dropped silently. */
async function refuseOtherColumns(source: DatabaseSync, session: Session, table: string): Promise<void> {
  const own = source.prepare("SELECT name FROM pragma_table_info(?)").all(table);
  const others = await session.query(
    "SELECT column_name AS name FROM information_schema.columns WHERE table_schema = current_schema AND table_name = $1",
    [table],
  );
  const names = (rows: readonly Row[]): string =>
    rows
      .map((row) => text(row, "name"))
      .toSorted()
      .join();
  if (names(own) !== names(others)) {
    throw millpondError("MILLPOND_E_INTERNAL", `the table ${table} is not the same in both databases`);
  }
}

async function takeIdentity(source: DatabaseSync, session: Session): Promise<void> {
  const pool = source.prepare("SELECT * FROM pool").get() ?? {};
  await session.query(
    "UPDATE pool SET identity = $1, revision = $2, epoch = $3, ticket_key = $4, term = $5, restored_epoch = $6, resumed_at = $7",
    [
      text(pool, "identity"),
      integer(pool, "revision"),
      integer(pool, "epoch"),
      blob(pool, "ticket_key"),
      integer(pool, "term") + termsAhead,
      integer(pool, "restored_epoch"),
      integer(pool, "resumed_at"),
    ],
  );
}
