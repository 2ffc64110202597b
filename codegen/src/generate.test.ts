// SPDX-License-Identifier: Apache-2.0
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { generate } from "./generate.ts";

const root = join(import.meta.dirname, "..", "..");

test("the committed files are what the description gives", () => {
  const files = generate();
  expect(files.size).toBeGreaterThan(15);
  const stale = [...files].filter(([path, content]) => readFileSync(join(root, path), "utf8") !== content);
  expect(stale.map(([path]) => path)).toEqual([]);
});

test("the same description gives the same bytes", () => {
  expect([...generate()]).toEqual([...generate()]);
});
