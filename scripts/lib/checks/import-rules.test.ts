// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { findImportFaults, importsOf, type ImportRules, type Workspace } from "./import-rules.ts";

const rules: ImportRules = {
  layers: { "house/src": { low: [], high: ["low"] } },
  shared: { "test → scripts": "paths" },
};
const workspaces: readonly Workspace[] = [
  { folder: "house", name: "@m/house", dependencies: [] },
  { folder: "test", name: "@m/test", dependencies: ["@m/house"] },
];

function faults(files: Readonly<Record<string, string>>): string[] {
  return findImportFaults(
    Object.entries(files).map(([path, text]) => ({ path, text })),
    workspaces,
    rules,
  );
}

test("finds imports of every form", () => {
  const text = `import "./a.ts";
import type { B } from "./b.ts";
import {
  c,
} from "./c.ts";
export { d } from "./d.ts";
const e = await import("./e.ts");
`;
  expect(importsOf(text)).toEqual(["./a.ts", "./b.ts", "./c.ts", "./d.ts", "./e.ts"]);
});

test("an import of a lower layer, and of the wiring's parts, is allowed", () => {
  expect(
    faults({
      "house/src/low/a.ts": "",
      "house/src/high/b.ts": 'import { a } from "../low/a.ts";\n',
      "house/src/main.ts": 'import { b } from "./high/b.ts";\n',
      "test/x.test.ts": 'import { main } from "@m/house";\nimport { root } from "../scripts/paths.ts";\n',
    }),
  ).toEqual([]);
});

test("an import of a higher layer is a fault, of a type too", () => {
  expect(faults({ "house/src/low/a.ts": 'import type { B } from "../high/b.ts";\n' })).toEqual([
    "house/src/low/a.ts imports house/src/high/b.ts: house/src/low may import nothing else",
  ]);
});

test("a folder that is no layer is a fault as soon as it imports another", () => {
  expect(faults({ "house/src/new/a.ts": 'import { b } from "../low/b.ts";\n' })).toEqual([
    "house/src/new/a.ts: house/src/new is no layer of scripts/lib/checks/layers.ts",
  ]);
});

test("a cycle is named by a way around it", () => {
  expect(
    faults({
      "house/src/low/a.ts": 'import type { B } from "./b.ts";\n',
      "house/src/low/b.ts": 'import { c } from "./c.ts";\nimport { d } from "./d.ts";\n',
      "house/src/low/c.ts": 'import { a } from "./a.ts";\n',
      "house/src/low/d.ts": "",
    }),
  ).toEqual([expect.stringMatching(/^import cycle: (house\/src\/low\/[abc]\.ts( → )?){4}$/)]);
});

test("another workspace is imported by its declared name only", () => {
  expect(
    faults({
      "test/x.test.ts": 'import { a } from "../house/src/low/a.ts";\n',
      "house/src/main.ts": 'import { x } from "@m/test/support";\n',
    }),
  ).toEqual([
    "test/x.test.ts imports house/src/low/a.ts: another workspace is imported by its name, not by a path",
    "house/src/main.ts imports @m/test/support: house/package.json does not declare @m/test",
  ]);
});
