// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { isName, parseName } from "./names.ts";

test.each(["a", "0", "node-a", "claim-7f3a", "a".repeat(63), "a--b"])("accepts %s", (name) => {
  expect(isName(name)).toBe(true);
  expect(parseName(name, "node name")).toBe(name);
});

test.each(["", "-", "-a", "a-", "A", "a.b", "a_b", "a b", "a\n", "é", "../x", "a".repeat(64)])(
  "refuses %j",
  (name) => {
    expect(isName(name)).toBe(false);
    expect(() => parseName(name, "node name")).toThrow(
      /^\[invalid_argument\] the node name .* \[MILLPOND_E_INVALID\]$/,
    );
  },
);
