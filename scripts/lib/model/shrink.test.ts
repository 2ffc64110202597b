// SPDX-License-Identifier: Apache-2.0
import fc from "fast-check";
import { expect, test } from "vitest";
import { shrink } from "./shrink.ts";

const soon = (): number => performance.now() + 10_000;

test("what fails by some of its items is shrunk to these", async () => {
  const items = fc.uniqueArray(fc.integer(), { minLength: 1, maxLength: 40 });
  await fc.assert(
    fc.asyncProperty(items, fc.nat(), fc.nat(), async (all, a, b) => {
      const needed = new Set([all[a % all.length], all[b % all.length]]);
      const fails = async (rest: readonly number[]): Promise<boolean> =>
        [...needed].every((item) => item !== undefined && rest.includes(item));
      expect(new Set(await shrink(all, fails, soon()))).toEqual(needed);
    }),
  );
});

test("a list that fails only as a whole stays whole", async () => {
  const all = [1, 2, 3, 4, 5];
  expect(await shrink(all, async (rest) => rest.length === all.length, soon())).toEqual(all);
});

test("when the time is over, the smallest list so far is returned", async () => {
  expect(await shrink([1, 2, 3], async () => true, performance.now() - 1)).toEqual([1, 2, 3]);
});
