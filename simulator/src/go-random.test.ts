// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { GoRandom } from "./go-random.ts";

// The output of Go 1.19 programs.

test("numbers of 64 bits are those of Go", () => {
  const random = new GoRandom(42);
  expect(Array.from({ length: 5 }, () => random.next())).toEqual([
    12663951391086054483n,
    9832119173398632219n,
    5571782338101878760n,
    1926012586526624009n,
    9627525982598323465n,
  ]);
});

test("numbers below a bound are those of Go, for small and large bounds and powers of two", () => {
  const first = new GoRandom(1);
  expect(Array.from({ length: 10 }, () => first.below(100))).toEqual([81, 87, 47, 59, 81, 18, 25, 40, 56, 0]);
  const last = new GoRandom(2_147_483_646);
  const bounds = [2_147_483_647, 2 ** 30, 1_500_000_000, 1_500_000_000, 1_500_000_000];
  expect(bounds.map((bound) => last.below(bound))).toEqual([
    848_658_911, 128_096_752, 720_391_224, 1_207_371_076, 1_234_863_743,
  ]);
});

test("after many numbers they still are", () => {
  const random = new GoRandom(51);
  let sum = 0;
  for (let count = 0; count < 100_000; count++) {
    sum = (sum * 31 + random.below(1_000_003)) % 1_000_000_007;
  }
  expect(sum).toBe(834_400_262);
});

test("a list is shuffled as Go shuffles it", () => {
  const items = Array.from({ length: 10 }, (_, index) => index);
  new GoRandom(42).shuffle(items);
  expect(items).toEqual([2, 5, 7, 9, 6, 8, 1, 4, 0, 3]);
});
