// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { renderJsonPath } from "./json-path.ts";

const list = {
  kind: "NodeList",
  items: [
    { name: "a", devices: [{ uuid: "u0" }, { uuid: "u1" }], labels: { "x/y": "1" }, reason: null },
    { name: "b", devices: [], labels: {}, cordoned: true },
  ],
};

test.for([
  ["{.kind}", "NodeList"],
  [".kind", "NodeList"],
  ["{$.kind}", "NodeList"],
  ["{.items[*].name}", "a b"],
  ["{.items[0].devices[*].uuid}", "u0 u1"],
  ["{.items[-1].name}", "b"],
  ["{.items[2].name}{.items[-3].name}{.nothing.there}", ""],
  ["{.items[0].labels['x/y']}", "1"],
  ["{.items[1].cordoned}", "true"],
  ["{.items[0].reason}", ""],
  ["{.items[1].labels}", "{}"],
  ['nodes: {.items[0].name}{"\\n"}{.items[1].name}', "nodes: a\nb"],
] as const)("%s", ([template, text]) => {
  expect(renderJsonPath(template, list)).toBe(text);
});

test.for([
  "{.items[?(@.name=='a')]}",
  "{range .items[*]}{.name}{end}",
  "{.items",
  "{.items[0:1]}",
  "{..name}",
])("%s is refused", (template) => {
  expect(() => renderJsonPath(template, list)).toThrow("[MILLPOND_E_INVALID]");
});
