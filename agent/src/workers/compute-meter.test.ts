// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { ComputeMeter } from "./compute-meter.ts";

const reading = (computeUsedNs: number, isMeasured = true) => [{ uuid: "GPU-1", computeUsedNs, isMeasured }];

test("a rate is the use between the last two reports that are far enough apart", () => {
  const meter = new ComputeMeter();
  expect(meter.rateOf("GPU-1", 0)).toBeUndefined();
  meter.note(reading(0), 0);
  expect(meter.rateOf("GPU-1", 0)).toBeUndefined();
  meter.note(reading(300e6), 1000);
  expect(meter.rateOf("GPU-1", 1000)).toBeCloseTo(0.3);
  // Sent because the memory use changed: too soon after the previous report for a rate.
  meter.note(reading(400e6), 1100);
  expect(meter.rateOf("GPU-1", 1100)).toBeGreaterThan(0.3);
  expect(meter.rateOf("GPU-1", 1100)).toBeLessThanOrEqual(1);
  meter.note(reading(400e6), 2100);
  expect(meter.rateOf("GPU-1", 2100)).toBeLessThan(0.2);
});

test("a session that has its device for itself is not measured, and a silent one is not known", () => {
  const meter = new ComputeMeter();
  meter.note(reading(0, false), 0);
  expect(meter.rateOf("GPU-1", 1000)).toBe("alone");
  expect(meter.rateOf("GPU-1", 6000)).toBeUndefined();
  expect(meter.rateOf("GPU-2", 0)).toBeUndefined();
});

test("a count that begins again is no negative rate", () => {
  const meter = new ComputeMeter();
  meter.note(reading(5e9), 0);
  meter.note(reading(1e6), 1000);
  expect(meter.rateOf("GPU-1", 1000)).toBe(0);
});
