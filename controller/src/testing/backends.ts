// SPDX-License-Identifier: Apache-2.0

// All kinds of store; each is tested like the others.

import { afterAll, onTestFinished } from "vitest";
import { PostgresStore } from "../store/postgres-store.ts";
import { SqliteStore } from "../store/sqlite-store.ts";
import type { Store } from "../state/store.ts";
import { missingPostgres, PostgresServer } from "./postgres-server.ts";
import { makeTestDirectory } from "./test-pool.ts";

/** How much is kept of data that only grows. */
export interface Limits {
  readonly maxEvents?: number;
  readonly maxAuditRecords?: number;
}

/** A place for a state, initially empty. */
export interface Place {
  /** Opens it; it is closed after the test. */
  open(limits?: Limits): Promise<Store>;
}

export interface Backend {
  readonly name: string;
  /** Why it cannot be tested on this machine; undefined: it can. */
  readonly missing: string | undefined;
  makePlace(): Promise<Place>;
}

const sqlite: Backend = {
  name: "SQLite",
  missing: undefined,
  makePlace: async () => {
    const directory = makeTestDirectory();
    return {
      open: async (limits = {}) => {
        const store = SqliteStore.open({ directory, ...limits });
        onTestFinished(() => store.close().catch(() => undefined));
        return store;
      },
    };
  },
};

let server: Promise<PostgresServer> | undefined;

/** The server of this test file, which stops with it. */
export async function postgresServer(): Promise<PostgresServer> {
  server ??= PostgresServer.start();
  return await server;
}

const postgres: Backend = {
  name: "PostgreSQL",
  missing: missingPostgres,
  makePlace: async () => {
    const url = await (await postgresServer()).makeDatabase();
    return {
      open: async (limits = {}) => {
        const store = await PostgresStore.open({ url, ...limits });
        onTestFinished(() => store.close().catch(() => undefined));
        return store;
      },
    };
  },
};

afterAll(async () => {
  await (await server)?.[Symbol.asyncDispose]();
});

export const backends: readonly Backend[] = [sqlite, postgres];
