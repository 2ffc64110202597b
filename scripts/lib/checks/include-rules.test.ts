// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { findIncludeFaults, type IncludeRules } from "./include-rules.ts";
import { readLayers } from "./native-layers.ts";

const rules: IncludeRules = {
  layers: readLayers([
    "millpond_layer(low FILES_OF low)\nmillpond_layer(high FOLDERS high WITHOUT high/main.cpp USES low)\n",
  ]),
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

test("an include of a layer that is not named is a fault, but for tests and programs", () => {
  const upward = { "high/b.h": "", "low/a.cpp": '#include "high/b.h"\n' };
  expect(faults(upward)).toEqual(["low/a.cpp includes high/b.h: low uses no other layer"]);
  const tests = {
    "high/b.h": "",
    "low/a_test.cpp": '#include "high/b.h"\n',
    "testing/c.h": '#include "high/b.h"\n',
    "high/main.cpp": '#include "testing/c.h"\n',
  };
  expect(faults(tests)).toEqual([]);
});

test("a folder inside of a layer's may be a layer of its own, and files directly in a folder, too", () => {
  const layers = readLayers([
    `# millpond_layer(none FOLDERS low)
millpond_layer(files FILES_OF low \${options} OPTIONS $<$<NOT:$<CONFIG:Debug>>:-Os> -fno-rtti) # the lowest
millpond_layer(inner FOLDERS low/outer/inner BUILT_APART
               USES files)
millpond_layer(outer FOLDERS low/outer USES files inner)`,
  ]);
  expect(layers.map(({ name, uses }) => [name, uses])).toEqual([
    ["files", []],
    ["inner", ["files"]],
    ["outer", ["files", "inner"]],
  ]);
  const files = {
    "low/c.h": "",
    "low/outer/inner/b.h": '#include "low/c.h"\n',
    "low/outer/other/a.cpp": '#include "low/outer/inner/b.h"\n#include "low/c.h"\n',
  };
  expect(faults(files, { layers })).toEqual([]);
  const upward = { "low/outer/inner/b.h": '#include "low/outer/d.h"\n', "low/outer/d.h": "" };
  expect(faults(upward, { layers })).toEqual([
    "low/outer/inner/b.h includes low/outer/d.h: inner uses files",
  ]);
});

test("an include of what is no file is a fault", () => {
  expect(faults({ "low/a.cpp": '#include "low/moved.h"\n' })).toEqual([
    'low/a.cpp includes "low/moved.h", which does not exist',
  ]);
});

test("a file of no layer is a fault as soon as it includes another one", () => {
  expect(faults({ "low/a.h": "", "new/b.h": '#include "low/a.h"\n' })).toEqual([
    "new/b.h belongs to no layer: name its folder in a millpond_layer of CMake",
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
