// SPDX-License-Identifier: Apache-2.0
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { attacks } from "./attacks.ts";
import { inRoot } from "./paths.ts";

const sources = ["agent/src", "api/src", "controller/src", "native", "platform/src", "test"].flatMap(
  (folder) =>
    readdirSync(inRoot(folder), { recursive: true, encoding: "utf8" }).map((path) => join(folder, path)),
);

/** The text of the files of this name. Of native files there may be several, one for each program. */
function textOf(name: string): string {
  const found = sources.filter((path) => path.endsWith(`/${name}`));
  if (name.endsWith(".ts")) expect(found, name).toHaveLength(1);
  return found.map((path) => readFileSync(inRoot(path), "utf8")).join("");
}

test("there are 20 attacks, by their numbers, and each has tests", () => {
  expect(attacks.map(({ number }) => number)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  expect(new Set(attacks.map(({ name }) => name)).size).toBe(20);
  for (const { name, native, scripts } of attacks)
    expect(native.length + scripts.length, name).toBeGreaterThan(0);
});

test.each(attacks)("the tests of $name are there", ({ native, scripts }) => {
  const named = [
    ...native.map(({ file, only }) => ({ file, only, text: textOf(`${file}.cpp`) })),
    ...scripts.map(({ file, only }) => ({ file, only, text: textOf(file) })),
  ];
  for (const { file, only, text } of named) {
    expect(text, file).toMatch(/^\s*(TEST\(|(test|it)[.(])/m);
    for (const words of only ?? []) expect(text, `${file}: ${words}`).toContain(words);
  }
});
