// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { isName, isNodeName, parseName, parseNodeName } from "./names.ts";

test.each(["a", "0", "node-a", "claim-7f3a", "a".repeat(63), "a--b"])("accepts %s", (name) => {
  expect(isName(name)).toBe(true);
  expect(parseName(name, "claim name")).toBe(name);
  expect(parseNodeName(name)).toBe(name);
});

test.each(["", "-", "-a", "a-", "A", "a.b", "a_b", "a b", "a\n", "é", "../x", "a".repeat(64)])(
  "refuses %j",
  (name) => {
    expect(isName(name)).toBe(false);
    expect(() => parseName(name, "claim name")).toThrow(
      /^\[invalid_argument\] the claim name .* \[MILLPOND_E_INVALID\]$/,
    );
  },
);

test.each(["ip-10-0-0-1.ec2.internal", "a.b", `${"a".repeat(31)}.${"b".repeat(31)}`])(
  "accepts %s as the name of a node alone",
  (name) => {
    expect(isName(name)).toBe(false);
    expect(isNodeName(name)).toBe(true);
    expect(parseNodeName(name)).toBe(name);
  },
);

test.each([
  "",
  ".",
  "a.",
  ".a",
  "a..b",
  "a.-b",
  "A.b",
  "a/b",
  "../x",
  "a.b\n",
  `${"a".repeat(32)}.${"b".repeat(31)}`,
])("refuses %j as the name of a node", (name) => {
  expect(isNodeName(name)).toBe(false);
  expect(() => parseNodeName(name)).toThrow(/the node name .* \[MILLPOND_E_INVALID\]$/);
});
