// SPDX-License-Identifier: Apache-2.0
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { attacks } from "./attacks.ts";
import { inRoot } from "./paths.ts";

const nativeSources = readdirSync(inRoot("native"), { recursive: true, encoding: "utf8" });

/** The text of a file of native cases. */
function nativeText(file: string): string {
  return nativeSources
    .filter((path) => path.endsWith(`/${file}.cpp`))
    .map((path) => readFileSync(inRoot("native", path), "utf8"))
    .join("");
}

test("there are 20 attacks, by their numbers, and each has tests", () => {
  expect(attacks.map(({ number }) => number)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  expect(new Set(attacks.map(({ name }) => name)).size).toBe(20);
  for (const { name, native, scripts } of attacks)
    expect(native.length + scripts.length, name).toBeGreaterThan(0);
});

test.each(attacks)("the tests of $name are there", ({ native, scripts }) => {
  const named = [
    ...native.map(({ file, only }) => ({ file, only, text: nativeText(file) })),
    ...scripts.map(({ file, only }) => ({ file, only, text: readFileSync(inRoot(file), "utf8") })),
  ];
  for (const { file, only, text } of named) {
    expect(text, file).toMatch(/^\s*(TEST\(|(test|it)[.(])/m);
    for (const words of only ?? []) expect(text, `${file}: ${words}`).toContain(words);
  }
});
