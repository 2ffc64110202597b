// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { commandNames } from "../command-table/command-table.ts";
import { helpWidth, renderCommandHelp, renderHelp } from "./help.ts";

test("help has the width of the terminal, within 40 and 120 columns", () => {
  expect(helpWidth(80, {})).toBe(80);
  expect(helpWidth(80, { COLUMNS: "100" })).toBe(100);
  expect(helpWidth(undefined, {})).toBe(120);
  expect(helpWidth(10, {})).toBe(40);
  expect(helpWidth(500, { COLUMNS: "wide" })).toBe(120);
});

test.each([60, 80, 120])("no help has a line of prose beyond %d columns, and no word is cut", (width) => {
  const whole = words(
    [renderHelp(120), ...commandNames.map((name) => renderCommandHelp(name, 120))].join("\n"),
  );
  const pages = [renderHelp(width), ...commandNames.map((name) => renderCommandHelp(name, width))];
  // Example commands and usage lines are not wrapped, because they are for copying.
  const lines = pages.flatMap((page) => page.split("\n")).filter((line) => !/^(?: {2}\S|Usage:)/.test(line));
  expect(lines.filter((line) => line.length > width && line.trim().includes(" "))).toEqual([]);
  expect(words(pages.join("\n"))).toEqual(whole);
});

function words(text: string): string[] {
  return text.split(/\s+/);
}
