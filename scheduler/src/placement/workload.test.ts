// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { anyModel } from "./free-capacity.ts";
import { differenceOf, workloadOf } from "./workload.ts";

const workload = (shapes: readonly (readonly [gpuMilli: number, weight: number])[]) =>
  workloadOf(
    shapes.map(([gpuMilli, weight]) => ({
      shape: { cpuMilli: 0, memoryMiB: 0, gpus: 1, gpuMilli, models: anyModel },
      weight,
    })),
  );

test.each([
  [
    "the same",
    [
      [250, 3],
      [500, 1],
    ],
    [
      [500, 2],
      [250, 6],
    ],
    0,
  ],
  [
    "one claim in four is another",
    [[250, 4]],
    [
      [250, 3],
      [500, 1],
    ],
    0.25,
  ],
  ["nothing in common", [[250, 1]], [[500, 1]], 1],
] as const)("workloads differ by a share of the claims: %s", (_what, a, b, difference) => {
  expect(differenceOf(workload(a), workload(b))).toBeCloseTo(difference);
  expect(differenceOf(workload(b), workload(a))).toBeCloseTo(difference);
});
