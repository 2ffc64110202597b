// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { errorCodeOf } from "./errors.ts";
import {
  countOf,
  formatAge,
  formatBytes,
  formatDuration,
  formatMemory,
  formatNeed,
  formatSize,
  formatTime,
  maxMemoryBytes,
  minMemoryBytes,
  parseDuration,
  parseFraction,
  parseMemory,
  parsePercent,
  parseSize,
} from "./units.ts";

function codeOf(run: () => unknown): string | undefined {
  try {
    run();
  } catch (error) {
    return errorCodeOf(error);
  }
  return "accepted";
}

const memorySizes = fc.bigInt({ min: minMemoryBytes, max: maxMemoryBytes });

describe("parseSize", () => {
  test.each([
    ["512Mi", 536_870_912n],
    ["512MiB", 536_870_912n],
    ["512mi", 536_870_912n],
    ["8G", 8_000_000_000n],
    ["8GB", 8_000_000_000n],
    ["8Gi", 8_589_934_592n],
    ["8192", 8_589_934_592n],
    ["1", 1_048_576n],
    ["1.5Gi", 1_610_612_736n],
    ["1048577B", 1_048_577n],
    ["0.001953125Gi", 2_097_152n],
    ["1024Ti", 1n << 50n],
  ])("reads %s", (text, bytes) => {
    expect(parseSize(text)).toBe(bytes);
  });

  test.each([
    "",
    " ",
    "-1",
    "0",
    "0Mi",
    "1023Ki",
    "1048575B",
    "1025Ti",
    "1.5",
    "1..5G",
    "Gi",
    "8 Gi",
    "8Gi ",
    "8Pi",
    "1e3",
    "0x10",
    "8GiGi",
    "99999999999999999",
    "٣",
    "NaN",
    "8\n",
  ])("refuses %j", (text) => {
    expect(codeOf(() => parseSize(text))).toBe("MILLPOND_E_INVALID");
  });

  test("reads back what formatSize wrote", () => {
    fc.assert(
      fc.property(memorySizes, (bytes) => {
        expect(parseSize(formatSize(bytes))).toBe(bytes);
      }),
    );
  });

  test("returns a size within the range or refuses, whatever the text", () => {
    const text = fc.oneof(fc.string(), fc.stringMatching(/^\d{1,5}(\.\d{1,3})?([kKmMgGtT]i?)?[bB]?$/));
    function outcome(input: string): string {
      try {
        const bytes = parseSize(input);
        return bytes >= minMemoryBytes && bytes <= maxMemoryBytes ? "within" : "out of range";
      } catch (error) {
        return errorCodeOf(error) ?? "another error";
      }
    }
    fc.assert(
      fc.property(text, (input) => {
        expect(["within", "MILLPOND_E_INVALID"]).toContain(outcome(input));
      }),
    );
  });
});

describe("parsePercent and parseMemory", () => {
  test.each([
    ["50%", 50],
    ["50", 50],
    ["0.5", 50],
    ["0.01", 1],
    ["0.29", 29],
    ["0.290", 29],
    ["1.0", 100],
    ["100", 100],
    ["1%", 1],
  ])("reads the share %s", (text, percent) => {
    expect(parsePercent(text)).toBe(percent);
  });

  test.each(["", "%", "0", "0%", "0.0", "101", "1.01", "0.005", "0.123", "-5", "5 %", "5%%", ".5", "half"])(
    "refuses the share %j",
    (text) => {
      expect(codeOf(() => parsePercent(text))).toBe("MILLPOND_E_INVALID");
    },
  );

  test("a whole number is no fraction, and a bare 1 no share: it could be a hundredth or all", () => {
    expect(() => parsePercent("1")).toThrow(/Write 1\.0 for all of it or 1% for a hundredth/);
    expect(() => parseFraction("1")).toThrow(/Write 1\.0 for all of it or 1% for a hundredth/);
    expect(() => parseFraction("50")).toThrow(/Write 0\.5 for a half, or 50%/);
    expect(["0.5", "50%", "1.0", "1%", "100%"].map(parseFraction)).toEqual([50, 50, 100, 1, 100]);
  });

  test.each([
    ["512Mi", { kind: "bytes", bytes: 536_870_912n }],
    ["8192", { kind: "bytes", bytes: 8_589_934_592n }],
    ["50%", { kind: "percent", percent: 50 }],
    ["0.5", { kind: "percent", percent: 50 }],
    ["1.0", { kind: "percent", percent: 100 }],
  ] as const)("reads the memory %s", (text, memory) => {
    expect(parseMemory(text)).toEqual(memory);
  });

  test.each(["1.5", "2.0", "0", "0.", ".", "%", "101%"])("refuses the memory %j", (text) => {
    expect(codeOf(() => parseMemory(text))).toBe("MILLPOND_E_INVALID");
  });

  test("reads back what formatMemory wrote", () => {
    const memory = fc.oneof(
      memorySizes.map((bytes) => ({ kind: "bytes", bytes }) as const),
      fc.integer({ min: 1, max: 100 }).map((percent) => ({ kind: "percent", percent }) as const),
    );
    fc.assert(
      fc.property(memory, (request) => {
        expect(parseMemory(formatMemory(request))).toEqual(request);
      }),
    );
  });

  test("fractions and percentages mean the same", () => {
    for (let percent = 1; percent <= 100; percent++) {
      expect(parsePercent((percent / 100).toFixed(2))).toBe(percent);
      expect(parsePercent(`${percent}%`)).toBe(percent);
    }
  });
});

describe("formatBytes", () => {
  test.each([
    [0n, "0 MiB"],
    [1n, "1 B"],
    [536_870_912n, "512 MiB"],
    [1_610_612_736n, "1.5 GiB"],
    [40n << 30n, "40 GiB"],
    [(40n << 30n) - 1n, "39.9 GiB"],
    [141n << 30n, "141 GiB"],
    [2n << 40n, "2 TiB"],
  ])("shows %s as %s", (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });

  test("never shows more than there is", () => {
    fc.assert(
      fc.property(memorySizes, (bytes) => {
        expect(parseSize(formatBytes(bytes).replace(" ", "")) <= bytes).toBe(true);
      }),
    );
  });
});

describe("formatNeed", () => {
  test.each([
    [0n, "0 MiB"],
    [512n << 20n, "512 MiB"],
    [1100n << 20n, "1.1 GiB"],
    [(1n << 30n) + 1n, "1.1 GiB"],
    [(1n << 30n) - 1n, "1024 MiB"],
  ])("shows %s as %s", (bytes, text) => {
    expect(formatNeed(bytes)).toBe(text);
  });

  test("what is more than there is is never shown as what there is", () => {
    fc.assert(
      fc.property(memorySizes, memorySizes, (one, other) => {
        fc.pre(one !== other);
        const [less, more] = one < other ? [one, other] : [other, one];
        expect(formatNeed(more)).not.toBe(formatBytes(less));
      }),
    );
    expect(formatNeed((1n << 30n) + 1n)).not.toBe(formatBytes(1n << 30n));
  });
});

describe("durations", () => {
  test.each([
    ["90", 90],
    ["90s", 90],
    ["10m", 600],
    ["1h30m", 5400],
    ["2d", 172_800],
    ["0", 0],
    ["365d", 31_536_000],
  ])("reads %s", (text, seconds) => {
    expect(parseDuration(text)).toBe(seconds);
  });

  test.each(["", "s", "1.5h", "30m1h", "-1", "1w", "1h ", "366d", "9999999999"])("refuses %j", (text) => {
    expect(codeOf(() => parseDuration(text))).toBe("MILLPOND_E_INVALID");
  });

  test("reads back what formatDuration wrote", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 31_536_000 }), (seconds) => {
        expect(parseDuration(formatDuration(seconds))).toBe(seconds);
      }),
    );
  });

  test("an age shows its two greatest units", () => {
    expect(formatAge(3 * 86_400 + 4 * 3_600 + 59)).toBe("3d4h");
    expect(formatAge(725)).toBe("12m5s");
    expect(formatAge(0)).toBe("0s");
  });
});

test("a date is written in UTC to the second", () => {
  expect(formatTime(1_790_000_001)).toBe("2026-09-21T14:13:21Z");
  expect(formatTime(0n)).toBe("1970-01-01T00:00:00Z");
});

test("counts have the plural of their noun, unless they are 1", () => {
  expect([0, 1, 1n, 2, "0.5", "1"].map((count) => countOf(count, "GPU"))).toEqual([
    "0 GPUs",
    "1 GPU",
    "1 GPU",
    "2 GPUs",
    "0.5 GPUs",
    "1 GPU",
  ]);
  expect([countOf(1, "copy", "copies"), countOf(3, "copy", "copies")]).toEqual(["1 copy", "3 copies"]);
});
