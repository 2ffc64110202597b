// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Outcome, readOutcome } from "./finding.ts";
import { renderReport } from "./report.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "millpond-findings-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const access = {
  kind: "access",
  what: "illegal address",
  kernel: "k(int*)",
  block: [1, 0, 0],
  address: "0x1010",
  bytes: 4,
  space: "global",
  isFatal: false,
  by: { access: "write", thread: [3, 0, 0], function: "k(int*)", line: 7 },
};
const allocation = { address: "0x1000", bytes: 16, number: 2, by: "cuMemAlloc" };

const launch = { id: "1-0", kind: "launch", what: "checked", kernel: "k(int*)" };

function read(...lines: readonly object[]): Outcome["findings"] {
  return readAll(...lines).findings;
}

function readAll(...lines: readonly object[]): Outcome {
  const path = join(folder, "findings");
  writeFileSync(path, `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`);
  return readOutcome(path);
}

test("the last number told of a finding is how often it was", () => {
  const findings = read({ id: "1-1", ...access }, { id: "1-1", count: 2 }, { id: "1-1", count: 1000 });
  expect(findings).toEqual([{ ...access, count: 1000 }]);
});

test("processes that find the same are counted together", () => {
  const findings = read({ id: "1-1", ...access }, { id: "2-1", ...access }, { id: "2-1", count: 4 });
  expect(findings).toEqual([{ ...access, count: 5 }]);
});

test("what lies at an address says what is wrong with it", () => {
  const whatOf = (address: string, nearest: object): string | undefined =>
    read({ id: "1-1", ...access, address, nearest })[0]?.what;
  expect(whatOf("0x1010", allocation)).toBe("out of bounds");
  expect(whatOf("0x100e", allocation)).toBe("out of bounds");
  expect(whatOf("0xff0", allocation)).toBe("out of bounds");
  expect(whatOf("0x1004", { ...allocation, freedBy: "cuMemFree" })).toBe("use after free");
  // Memory of another device, or read-only memory.
  expect(whatOf("0x1004", allocation)).toBe("illegal address");
});

test("a line that was cut off, and a file that is not there, say nothing", () => {
  const path = join(folder, "cut");
  writeFileSync(path, `${JSON.stringify({ id: "1-1", ...access })}\n{"id":"1-2","ki`);
  expect(readOutcome(path).findings).toHaveLength(1);
  const nothing = readOutcome(join(folder, "none"));
  expect(nothing).toEqual({ findings: [], launches: 0, kernels: 0 });
  expect(renderReport(nothing)).toMatch(
    /^millpond sanitize: nothing was checked: no kernel .* was launched\n$/,
  );
});

test("what was checked is summed up over processes", () => {
  const outcome = readAll(
    launch,
    { id: "1-0", count: 3 },
    { ...launch, id: "2-0" },
    { ...launch, id: "2-1", kernel: "other" },
  );
  expect(outcome).toEqual({ findings: [], launches: 5, kernels: 2 });
  expect(renderReport(outcome)).toBe("millpond sanitize: no finding in 5 launches of 2 kernels\n");
});

test("an image that could not be loaded is a finding, once for each reason", () => {
  const refused = { kind: "unchecked", what: "an image could not be loaded", detail: "it has no PTX" };
  const outcome = readAll({ id: "1-0", ...refused }, { id: "2-0", ...refused });
  expect(renderReport(outcome)).toBe(
    "millpond sanitize: 1 finding; nothing was checked: no kernel of the program was launched\n\n" +
      "1. an image could not be loaded: it has no PTX, 2 times\n",
  );
});

test("the report says where an address is, seen from the memory next to it", () => {
  const report = (address: string): string =>
    renderReport(
      readAll(launch, { id: "1-1", ...access, address, nearest: allocation }, { id: "1-1", count: 2 }),
    );
  expect(report("0x1010")).toBe(`millpond sanitize: 1 finding in 1 launch of 1 kernel

1. out of bounds: write of 4 bytes at 0x1010 of global memory, 2 times
     in k(int*), block (1, 0, 0)
     write by thread (3, 0, 0) at PTX line 7 of k(int*)
     0 bytes behind allocation 2, 16 bytes at 0x1000 (cuMemAlloc)
     a real GPU would not report this access
`);
  expect(report("0xffc")).toContain("\n     4 bytes before allocation 2,");
  expect(report("0x100e")).toContain("\n     14 bytes into allocation 2,");
});
