// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { growthOf } from "./growth.ts";

const run = (of: (share: number) => number) =>
  Array.from({ length: 41 }, (_, index) => ({ done: index, mebibytes: of(index / 40) }));

test("memory that is taken at first and kept is flat, with the noise of an allocator", () => {
  expect(growthOf(run((share) => 100 + 50 * Math.min(1, share * 3))).isFlat).toBe(true);
  expect(growthOf(run((share) => 100 + 3 * Math.sin(share * 40))).isFlat).toBe(true);
});

test("memory that grows with the work is not flat, however slowly beside what was there", () => {
  expect(growthOf(run((share) => 100 + 40 * share))).toEqual({ mebibytes: 14, isFlat: false });
  expect(growthOf(run((share) => 10 + 10 * share)).isFlat).toBe(false);
});

test("memory that is given back is flat", () => {
  expect(growthOf(run((share) => 100 - 40 * share)).isFlat).toBe(true);
});
