// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { sharePrices } from "./cutting-stock.ts";
import { anyModel } from "./free-capacity.ts";
import type { WeightedShape } from "./workload.ts";

function asked(sizes: Readonly<Record<number, number>>): WeightedShape[] {
  return Object.entries(sizes).map(([size, weight]) => ({
    weight,
    shape: { cpuMilli: 0, memoryMiB: 0, gpus: 1, gpuMilli: Number(size), models: anyModel },
  }));
}

test("what fills gaps that there are plenty of costs nothing, what leaves them costs a whole GPU", () => {
  const prices = sharePrices(asked({ 810: 50, 160: 5, 470: 30 }));
  expect(prices.priceOf(810)).toBeCloseTo(1);
  expect(prices.priceOf(160)).toBeCloseTo(0);
  expect(prices.priceOf(470)).toBeCloseTo(0.5);
  expect(prices.worth[190]).toBeCloseTo(0);
  expect(prices.worth[1000]).toBeCloseTo(1);
});

test("sizes that fill a GPU together cost a GPU together", () => {
  const prices = sharePrices(asked({ 700: 10, 300: 10 }));
  expect(prices.priceOf(700) + prices.priceOf(300)).toBeCloseTo(1);
});

test("a workload without shares, or with shares too small to matter, has prices too", () => {
  expect(sharePrices([]).priceOf(500)).toBe(0);
  expect(sharePrices(asked({ 1000: 3 })).worth[1000]).toBe(0);
  expect(sharePrices(asked({ 1: 1 })).priceOf(1)).toBeCloseTo(0.001);
});

test("no pattern of shares is worth more than the GPU it lies on, and a GPU's worth can be reached", () => {
  fc.assert(
    fc.property(
      fc.dictionary(fc.integer({ min: 1, max: 999 }).map(String), fc.integer({ min: 1, max: 1000 }), {
        minKeys: 1,
        maxKeys: 40,
      }),
      (sizes) => {
        const { worth, priceOf } = sharePrices(asked(sizes));
        expect(worth[1000]).toBeCloseTo(1, 5);
        for (const size of Object.keys(sizes).map(Number)) {
          expect(priceOf(size)).toBeGreaterThanOrEqual(0);
          expect(priceOf(size)).toBeLessThanOrEqual(1 + 1e-6);
          // A smaller share never costs more than a larger one.
          expect(priceOf(size)).toBeLessThanOrEqual((worth[size] as number) + 1e-6);
        }
        worth.forEach((each, room) => {
          expect(each).toBeGreaterThanOrEqual((worth[room - 1] ?? 0) - 1e-9);
        });
      },
    ),
    { numRuns: 60 },
  );
});
