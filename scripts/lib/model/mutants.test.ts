// SPDX-License-Identifier: Apache-2.0
import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { inRoot } from "../paths.ts";
import { mutants, mutated } from "./mutants.ts";

describe("mutants of the model test", () => {
  it.each(mutants.map((mutant) => [mutant.bug, mutant] as const))(
    "%s still fits the source",
    async (_, mutant) => {
      const source = await readFile(inRoot(mutant.file), "utf8");
      expect(mutated(source, mutant)).not.toBe(source);
    },
  );

  it("is refused where its text has moved", () => {
    const [first] = mutants;
    expect(first).toBeDefined();
    if (first !== undefined) expect(() => mutated("int main() {}", first)).toThrow("occurs 0 times");
  });
});
