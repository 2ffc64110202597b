// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { findSizeFaults, type SizeRules } from "./size-rules.ts";

const rules: SizeRules = { maxLines: 10, maxEntries: 2, longFiles: {}, fullFolders: {}, data: ["a/data"] };
const file = (path: string, lines = 1): { path: string; lines: number } => ({ path, lines });

test("files may be as long as the limit, and folders as full", () => {
  expect(findSizeFaults([file("a/x.ts", 10), file("a/b/y.ts")], rules)).toEqual([]);
  expect(findSizeFaults([file("a/x.ts", 11)], rules)).toEqual(["a/x.ts has 11 lines, and may have 10"]);
  expect(findSizeFaults([file("a/x.ts"), file("a/b/y.ts"), file("a/c/z.ts")], rules)).toEqual([
    "a has 3 entries, and may have 2",
  ]);
});

test("generated files, data and folders without code are left out", () => {
  const files = [
    file("a/gen/x.cpp", 99),
    file("a/page.md", 99),
    file("docs/a.md"),
    file("docs/b.md"),
    file("docs/c.md"),
  ];
  expect(
    findSizeFaults([...files, file("a/data/1.h", 99), file("a/data/2.h"), file("a/data/3.h")], rules),
  ).toEqual([]);
});

test("an exception may shrink, does not grow, and ends with its reason", () => {
  const excepting: SizeRules = { ...rules, longFiles: { "a/x.ts": 20 }, fullFolders: { a: 3 } };
  const full = [file("a/y.ts"), file("a/z.ts")];
  expect(findSizeFaults([file("a/x.ts", 15), ...full], excepting)).toEqual([]);
  expect(findSizeFaults([file("a/x.ts", 21), file("a/w.ts"), ...full], excepting)).toEqual([
    "a/x.ts has 21 lines, and may have 20",
    "a has 4 entries, and may have 3",
  ]);
  expect(findSizeFaults([file("a/x.ts", 10)], excepting)).toEqual([
    "a/x.ts has 10 lines: remove it from the exceptions",
    "a has 1 entries: remove it from the exceptions",
  ]);
});
