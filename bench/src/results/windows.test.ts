// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { commonTime, shares } from "./windows.ts";

const second = 1e9;
/** 100 kernels a second in the first two seconds, then 300. */
const trace = {
  at: [0, 1, 2, 3, 4].map((each) => each * second),
  count: [0, 100, 200, 500, 800],
};

test("a share is what was finished in each window, as the GPU's time", () => {
  const got = shares(trace, [0, 4 * second], { workNs: 2e6, windowNs: second });
  expect(got.map((share) => Number(share.toFixed(6)))).toEqual([0.2, 0.2, 0.6, 0.6]);
  const between = shares(trace, [1.5 * second, 3.9 * second], { workNs: 2e6, windowNs: second });
  expect(between.map((share) => Number(share.toFixed(6)))).toEqual([0.4, 0.6]);
});

test("tenants are compared while all of them ran", () => {
  const later = { at: [1.25 * second, 3 * second], count: [0, 1] };
  expect(commonTime([trace, later], second / 2)).toEqual([1.75 * second, 3 * second]);
});
