// SPDX-License-Identifier: Apache-2.0

// Connections to a PostgreSQL database, and their errors.

import { type ErrorCode, errorCodeOf, millpondError, quote } from "@millpond/api";
import pg from "pg";
import type { Row } from "./rows.ts";

/** Our tables are in a schema of their own. */
const schema = "millpond";

/** Timeout for connecting to a server. */
const connectTimeoutMs = 2_000;
const answerTimeoutMs = 5_000;

/**
 * Shorter than the limit of the server, which would otherwise keep waiting for clients that are gone while each
 * reconnect takes another of its connections.
 */
const lockTimeoutMs = 4_000;
const statementTimeoutMs = 4_500;

/** One connection writes, one renews the lease, the others read. */
const maxConnections = 6;

export type SqlValue = string | number | Uint8Array;

/** A connection within a transaction. */
export interface Session {
  query(sql: string, values?: readonly SqlValue[]): Promise<Row[]>;
}

/** All our integers are below 2^53. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (id, format) =>
    id === pg.types.builtins.INT8 && format !== "binary" ? Number : pg.types.getTypeParser(id, format),
};

/** Closes a connection attempt that failed: otherwise the server waits a minute for the password that it requested. */
class TidyClient extends pg.Client {
  override connect(): Promise<pg.Client>;
  override connect(callback: (error: Error) => void): void;
  override connect(callback?: (error: Error) => void): Promise<pg.Client> | void {
    if (callback === undefined) {
      return super.connect();
    }
    super.connect((error: Error | null) => {
      if (error !== null) {
        this.end(() => undefined);
      }
      callback(error as Error);
    });
  }
}

export class PostgresConnections {
  readonly #pool: pg.Pool;
  /** For display: without the password. */
  readonly #where: string;

  /** @throws MILLPOND_E_INVALID */
  constructor(url: string) {
    this.#where = describeUrl(url);
    this.#pool = new pg.Pool({
      connectionString: url,
      application_name: "millpond-controller",
      // An acknowledged write is on disk, whatever the settings of the database.
      options: [
        `-c search_path=${schema} -c synchronous_commit=on`,
        `-c lock_timeout=${lockTimeoutMs} -c statement_timeout=${statementTimeoutMs}`,
      ].join(" "),
      connectionTimeoutMillis: connectTimeoutMs,
      query_timeout: answerTimeoutMs,
      keepAlive: true,
      max: maxConnections,
      types,
      Client: TidyClient,
    });
    // An idle connection has broken; the next query opens a new one, or fails with the cause.
    this.#pool.on("error", () => undefined);
  }

  /** @throws MILLPOND_E_STORE_UNREACHABLE, MILLPOND_E_STATE_BROKEN */
  async query(sql: string, values: readonly SqlValue[] = []): Promise<Row[]> {
    return await this.#explained(async () => (await this.#pool.query<Row>(sql, [...values])).rows);
  }

  /** The same for a frequent statement: it is parsed once per connection. */
  async queryPrepared(name: string, sql: string, values: readonly SqlValue[]): Promise<Row[]> {
    const ask = { name, text: sql, values: [...values] };
    return await this.#explained(async () => (await this.#pool.query<Row>(ask)).rows);
  }

  /** Runs within a transaction, which is committed unless the function throws. */
  async transaction<T>(
    mode: "read-only snapshot" | "read and write",
    run: (session: Session) => Promise<T>,
  ): Promise<T> {
    return await this.#explained(async () => {
      const client = await this.#pool.connect();
      const session: Session = {
        query: async (sql, values = []) => (await client.query<Row>(sql, [...values])).rows,
      };
      let failure: Error | undefined;
      try {
        await client.query(
          mode === "read and write" ? "BEGIN" : "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        );
        const value = await run(session);
        await client.query("COMMIT");
        return value;
      } catch (error) {
        failure = error instanceof Error ? error : new Error(String(error));
        throw error;
      } finally {
        // A connection on which a statement failed is closed, which rolls its transaction back.
        client.release(failure ?? false);
      }
    });
  }

  async makeSchema(session: Session): Promise<void> {
    await session.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }

  async #explained<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (cause) {
      throw this.#explain(cause);
    }
  }

  #explain(cause: unknown): unknown {
    if (errorCodeOf(cause) !== undefined) {
      return cause;
    }
    const message = cause instanceof Error ? cause.message : String(cause);
    const { code, what, remedy } = trouble(cause);
    return millpondError(code, `the database at ${this.#where} ${what}: ${message || "no connection"}`, {
      ...(remedy === undefined ? {} : { remedy }),
      cause,
    });
  }
}

interface Trouble {
  readonly code: ErrorCode;
  readonly what: string;
  /** Absent: the remedy of the error code. */
  readonly remedy?: string;
}

/** The meaning of a SQLSTATE with this prefix. */
const troubles: readonly (readonly [string, Trouble])[] = [
  [
    "53100",
    {
      code: "MILLPOND_E_STATE_FULL",
      what: "has no room",
      remedy: "Free space on the disk of the database; controllers recover by themselves.",
    },
  ],
  [
    "53300",
    {
      code: "MILLPOND_E_STORE_UNREACHABLE",
      what: "has no free connection",
      remedy:
        "Raise its max_connections, of which each controller takes up to six, or end others; controllers then recover by themselves.",
    },
  ],
  [
    "25006",
    {
      code: "MILLPOND_E_STORE_UNREACHABLE",
      what: "is read-only",
      remedy:
        "It is a standby, or default_transaction_read_only is on: name the primary in MILLPOND_STORE, or allow writes; controllers then recover by themselves.",
    },
  ],
  [
    "55P03",
    {
      code: "MILLPOND_E_STORE_UNREACHABLE",
      what: "is locked by another process",
      remedy:
        "Find in pg_stat_activity and pg_locks the session that locks the tables of the schema millpond, and end that session; controllers then recover by themselves.",
    },
  ],
  [
    "28",
    {
      code: "MILLPOND_E_STORE_UNREACHABLE",
      what: "rejects the login of this controller",
      remedy:
        "Start the controller with the right user and password in MILLPOND_STORE, or correct its pg_hba.conf.",
    },
  ],
  // Connection errors, insufficient resources, and an operator's shutdown: the server is unavailable or about to be.
  ...["08", "53", "57"].map(
    (code) => [code, { code: "MILLPOND_E_STORE_UNREACHABLE", what: "does not answer" }] as const,
  ),
];

const refused: Trouble = {
  code: "MILLPOND_E_STATE_BROKEN",
  what: "refused",
  remedy: "Check the log of the database.",
};

function trouble(cause: unknown): Trouble {
  if (cause instanceof pg.DatabaseError) {
    const { code = "" } = cause;
    return troubles.find(([prefix]) => code.startsWith(prefix))?.[1] ?? refused;
  }
  // Errors that the client detects before it sends a password, or that need none.
  const isAboutPassword = cause instanceof Error && cause.message.startsWith("SASL:");
  return troubles.find(([prefix]) => prefix === (isAboutPassword ? "28" : "08"))?.[1] ?? refused;
}

/** @throws MILLPOND_E_INVALID */
function describeUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "postgres:" && url?.protocol !== "postgresql:") {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the store ${quote(text.replace(/\/\/[^@/]*@/, "//…@"))} is not of the form postgres://user@host:5432/database`,
    );
  }
  return `${url.searchParams.get("host") ?? url.host}${url.pathname}`;
}
