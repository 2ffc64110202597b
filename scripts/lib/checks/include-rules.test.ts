// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { findIncludeFaults, type IncludeRules } from "./include-rules.ts";

const rules: IncludeRules = {
  components: { low: [], high: ["low"] },
  testing: ["testing"],
  knownCycles: [],
};

function faults(files: Readonly<Record<string, string>>, changed: Partial<IncludeRules> = {}): string[] {
  return findIncludeFaults(
    Object.entries(files).map(([path, text]) => ({ path, text })),
    { ...rules, ...changed },
  );
}

const cycle = {
  "low/a.h": "",
  "low/a.cpp": '#include "low/a.h"\n#include "low/b.h"\n',
  "low/b.h": '#include "low/a.h"\n',
};

test("an include of a lower component, and of a file beside the includer, is allowed", () => {
  expect(
    faults({
      "low/a.h": "#include <vector>\n",
      "high/b.cpp": '#include "low/a.h"\n#include "b.h"\n',
      "high/b.h": "",
    }),
  ).toEqual([]);
});

test("an include of a higher component is a fault, but for tests", () => {
  const upward = { "high/b.h": "", "low/a.cpp": '#include "high/b.h"\n' };
  expect(faults(upward)).toEqual(["low/a.cpp includes high/b.h: low may include nothing else"]);
  const tests = {
    "high/b.h": "",
    "low/a_test.cpp": '#include "high/b.h"\n',
    "testing/c.h": '#include "high/b.h"\n',
  };
  expect(faults(tests)).toEqual([]);
});

test("an include of a folder that is no lower layer is a fault, but for tests", () => {
  const layers = { low: { "": [], bottom: [""], top: ["", "bottom"] } };
  const files = {
    "low/top/a.cpp": '#include "low/bottom/b.h"\n#include "low/c.h"\n',
    "low/bottom/b.h": "",
    "low/c.h": "",
  };
  expect(faults(files, { layers })).toEqual([]);
  expect(
    faults(
      {
        "low/bottom/b.h": '#include "low/top/a.h"\n',
        "low/top/a.h": "",
        "low/bottom/b_test.cpp": '#include "low/top/a.h"\n',
      },
      { layers },
    ),
  ).toEqual(["low/bottom/b.h includes low/top/a.h: bottom may include low"]);
  expect(faults({ "low/new/d.h": '#include "low/c.h"\n', "low/c.h": "" }, { layers })).toEqual([
    "low/new/d.h: new is no layer of scripts/lib/checks/layers.ts",
  ]);
});

test("an include of what is no file is a fault", () => {
  expect(faults({ "low/a.cpp": '#include "low/moved.h"\n' })).toEqual([
    'low/a.cpp includes "low/moved.h", which does not exist',
  ]);
});

test("a component that the table lacks is a fault as soon as it includes another one", () => {
  expect(faults({ "low/a.h": "", "new/b.h": '#include "low/a.h"\n' })).toEqual([
    "new/b.h: new is no component of scripts/lib/checks/layers.ts",
  ]);
});

test("a cycle through a header and a source of the same name is a fault", () => {
  expect(faults(cycle)).toEqual(["include cycle: low/a → low/b → low/a"]);
});

test("a known cycle is none, until it grows or is broken", () => {
  expect(faults(cycle, { knownCycles: [["low/a", "low/b"]] })).toEqual([]);
  const grown = { ...cycle, "low/b.h": '#include "low/c.h"\n', "low/c.h": '#include "low/a.h"\n' };
  expect(faults(grown, { knownCycles: [["low/a", "low/b"]] })).toEqual([
    "a known include cycle has grown by low/c",
  ]);
  expect(faults({ "low/a.h": "", "low/b.h": "" }, { knownCycles: [["low/a", "low/b"]] })).toEqual([
    "no longer in a cycle, to be removed from scripts/lib/checks/layers.ts: low/a, low/b",
  ]);
});
