// SPDX-License-Identifier: Apache-2.0

// The stores that there are, each to be tested as the others are.

import { onTestFinished } from "vitest";
import { SqliteStore } from "../store/sqlite-store.ts";
import type { Store } from "../store/store.ts";
import { makeTestDirectory } from "./test-pool.ts";

/** How much is remembered of what only grows. */
export interface Limits {
  readonly maxEvents?: number;
  readonly maxAuditRecords?: number;
}

/** Where a state is kept, empty at first. */
export interface Place {
  /** Opens it; it is closed after the test. */
  open(limits?: Limits): Promise<Store>;
}

export interface Backend {
  readonly name: string;
  /** Why it cannot be tested here; undefined: it can. */
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

export const backends: readonly Backend[] = [sqlite];
