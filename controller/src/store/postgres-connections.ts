// SPDX-License-Identifier: Apache-2.0

// Connections to a PostgreSQL database, and what goes wrong with them.

import { errorCodeOf, millpondError, quote } from "@millpond/api";
import pg from "pg";
import type { Row } from "./rows.ts";

/** The tables are in a schema of their own. */
const schema = "millpond";

/** A server that does not answer within so long is away. */
const connectTimeoutMs = 2_000;
const answerTimeoutMs = 5_000;

/** One writes, one renews the lease, the others read. */
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

export class PostgresConnections {
  readonly #pool: pg.Pool;
  /** For people: without the password. */
  readonly #where: string;

  /** @throws MILLPOND_E_INVALID */
  constructor(url: string) {
    this.#where = describeUrl(url);
    this.#pool = new pg.Pool({
      connectionString: url,
      application_name: "millpond-controller",
      // What was answered is on the disk, whatever the database is set to.
      options: `-c search_path=${schema} -c synchronous_commit=on`,
      connectionTimeoutMillis: connectTimeoutMs,
      query_timeout: answerTimeoutMs,
      keepAlive: true,
      max: maxConnections,
      types,
    });
    // Told of idle connections that break; whoever needs one next gets a new one, or learns why there is none.
    this.#pool.on("error", () => undefined);
  }

  /** @throws MILLPOND_E_STORE_UNREACHABLE, MILLPOND_E_STATE_BROKEN */
  async query(sql: string, values: readonly SqlValue[] = []): Promise<Row[]> {
    return await this.#explained(async () => (await this.#pool.query<Row>(sql, [...values])).rows);
  }

  /** The same for a statement that is asked often: it is parsed once for each connection. */
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
        // A connection on which something failed is closed, and its transaction rolled back with it.
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
    if (cause instanceof pg.DatabaseError && cause.code === diskFull) {
      return millpondError(
        "MILLPOND_E_STATE_FULL",
        `the database at ${this.#where} has no room: ${message}`,
        {
          cause,
        },
      );
    }
    if (isRefusal(cause)) {
      return millpondError("MILLPOND_E_STATE_BROKEN", `the database at ${this.#where} refused: ${message}`, {
        remedy: "Look into the log of the database.",
        cause,
      });
    }
    return millpondError(
      "MILLPOND_E_STORE_UNREACHABLE",
      `the database at ${this.#where} does not answer: ${message || "no connection"}`,
      { cause },
    );
  }
}

/** SQLSTATE. */
const diskFull = "53100";

/** Whether the server has understood and said no; else it is away, or going. */
function isRefusal(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) {
    return false;
  }
  // Classes of SQLSTATE: connections, too few resources (but a full disk), and an operator who stops the server.
  return !/^(?:08|57|53[^1])/.test(error.code ?? "");
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
