// SPDX-License-Identifier: Apache-2.0
import { execFileSync } from "node:child_process";

import { expect, test } from "vitest";

import { shellQuote } from "./shell.ts";

test("words without special characters stay as they are", () => {
  expect(shellQuote("node-1/0=a,b%@+:.")).toBe("node-1/0=a,b%@+:.");
});

test.each(["", " ", "it's", "$(id)", "a;b", "`id`", "~", "#x", "a\nb", '"', "\\", "*", "'\\''", "ä"])(
  "a shell reads %j back unchanged",
  (text) => {
    expect(execFileSync("sh", ["-c", `printf %s ${shellQuote(text)}`], { encoding: "utf8" })).toBe(text);
  },
);
