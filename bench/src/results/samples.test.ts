// SPDX-License-Identifier: Apache-2.0

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { metrics } from "./metrics.ts";
import { quantile, Samples, summarise } from "./samples.ts";

describe("quantile", () => {
  test("interpolates between neighbours", () => {
    expect(quantile([1, 2, 4], 0.5)).toBe(2);
    expect(quantile([1, 2, 4, 8], 0.5)).toBe(3);
    expect(quantile([1, 3], 0.25)).toBe(1.5);
    expect(quantile([7], 0.9)).toBe(7);
  });

  test("lies within the samples and grows with the share", () => {
    const samples = fc.array(fc.double({ noNaN: true, min: -1e9, max: 1e9 }), { minLength: 1 });
    const shares = fc.tuple(
      fc.double({ noNaN: true, min: 0, max: 1 }),
      fc.double({ noNaN: true, min: 0, max: 1 }),
    );
    fc.assert(
      fc.property(samples, shares, (values, [a, b]) => {
        const sorted = values.toSorted((x, y) => x - y);
        const low = quantile(sorted, Math.min(a, b));
        const high = quantile(sorted, Math.max(a, b));
        const slack = 1e-6 * (1 + Math.abs(low));
        expect(low).toBeGreaterThanOrEqual((sorted[0] ?? 0) - slack);
        expect(high).toBeLessThanOrEqual((sorted.at(-1) ?? 0) + slack);
        expect(low).toBeLessThanOrEqual(high + slack);
      }),
    );
  });
});

test("a summary does not depend on the order of the samples", () => {
  expect(summarise([5, 1, 3])).toEqual({ median: 3, p10: 1.4, p90: 4.6, rounds: 3 });
  expect(summarise([1, 3, 5])).toEqual(summarise([5, 3, 1]));
});

test("printed samples are gathered by transport and metric", () => {
  const samples = new Samples();
  samples.addPrinted("shm", '{"launch_call":[1,2],"marker":[5]}');
  samples.addPrinted("shm", '{"launch_call":[3]}');
  samples.addPrinted("tcp", '{"launch_call":[9]}');
  const launch = metrics.find(({ name }) => name === "launch_call");
  if (launch === undefined) throw new Error("launch_call is no metric");
  expect(samples.summary("shm", launch)).toMatchObject({ median: 2, rounds: 3 });
  expect(samples.summary("tcp", launch)).toMatchObject({ median: 9, rounds: 1 });
  expect(samples.summary("native", launch)).toBeUndefined();
});

test.each(['{"unknown":[1]}', '{"marker":1}', '{"marker":["1"]}', '{"marker":[null]}', "null", "not JSON"])(
  "what a measuring program cannot have printed is refused: %s",
  (text) => {
    expect(() => new Samples().addPrinted("shm", text)).toThrow(Error);
  },
);
