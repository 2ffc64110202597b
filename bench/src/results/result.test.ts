// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import type { Machine } from "./machine.ts";
import { isMet } from "./metrics.ts";
import { formatTable, makeResult } from "./result.ts";
import { Samples } from "./samples.ts";

const machine: Machine = {
  hardware: "Software GPU",
  cpu: "A processor",
  cores: 2,
  driver: "",
  versions: { millpond: "0.1.0", cuda: 13000, linux: "6.1", node: "26.0.0" },
  load: 0.5,
};

test("a bar is met at its value", () => {
  expect(isMet({ kind: "atMost", value: 5 }, 5)).toBe(true);
  expect(isMet({ kind: "atMost", value: 5 }, 5.1)).toBe(false);
  expect(isMet({ kind: "atLeast", value: 3 }, 3)).toBe(true);
  expect(isMet({ kind: "atLeast", value: 3 }, 2.9)).toBe(false);
});

test("a result holds what was measured, with its bar where the transport has one", () => {
  const samples = new Samples();
  samples.add("native", "launch_call", 3);
  samples.add("shm", "launch_call", 0.75);
  samples.add("tcp", "to_device_pinned_rate", 4);
  const result = makeResult(machine, new Date("2026-11-20T10:00:00.123Z"), samples);
  expect(result).toEqual({
    ...machine,
    date: "2026-11-20T10:00:00Z",
    results: [
      {
        transport: "native",
        metrics: { launch_call: { median: 3, p10: 3, p90: 3, rounds: 1, unit: "µs", bar: null, met: null } },
      },
      {
        transport: "shm",
        metrics: {
          launch_call: {
            median: 0.75,
            p10: 0.75,
            p90: 0.75,
            rounds: 1,
            unit: "µs",
            bar: "<= 0.5",
            met: false,
          },
        },
      },
      {
        transport: "tcp",
        metrics: {
          to_device_pinned_rate: {
            median: 4,
            p10: 4,
            p90: 4,
            rounds: 1,
            unit: "GB/s",
            bar: ">= 3",
            met: true,
          },
        },
      },
    ],
  });
  expect(formatTable(result)).toMatchInlineSnapshot(`
    "                                  unit  native      shm     tcp  bars
    cuLaunchKernel, three parameters  µs      3.00  0.750 ✗       -  shm <= 0.5
    to the device, pinned             GB/s       -        -  4.00 ✓  tcp >= 3"
  `);
});
