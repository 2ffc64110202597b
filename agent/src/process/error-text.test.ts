// SPDX-License-Identifier: Apache-2.0

import { appendFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { isDiskFull } from "./error-text.ts";

function failureOf(run: () => void): unknown {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

test("a full disk is known by what SQLite and the system say of it", () => {
  using database = new DatabaseSync(":memory:");
  database.exec("PRAGMA max_page_count = 2; CREATE TABLE t (x)");
  const insert = "INSERT INTO t VALUES (zeroblob(100000))";
  expect(isDiskFull(failureOf(() => database.exec(insert)))).toBe(true);
  expect(isDiskFull(failureOf(() => appendFileSync("/dev/full", "x")))).toBe(true);
  expect(isDiskFull(failureOf(() => database.exec("nonsense")))).toBe(false);
  expect(isDiskFull(failureOf(() => appendFileSync("/nonexistent/file", "x")))).toBe(false);
  expect(isDiskFull("full")).toBe(false);
});
