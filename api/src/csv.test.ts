// SPDX-License-Identifier: Apache-2.0
import { expect, it } from "vitest";
import { csvField } from "./csv.ts";

it("a field has quotes only where it needs them", () => {
  const fields = ["plain", "NVIDIA H200, SXM", 'a "b"', "two\nlines", "", undefined, 1.5];
  expect(fields.map(csvField)).toEqual([
    "plain",
    '"NVIDIA H200, SXM"',
    '"a ""b"""',
    '"two\nlines"',
    "",
    "",
    "1.5",
  ]);
});

it("a text that a spreadsheet would run gets an apostrophe, and a negative number does not", () => {
  const formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://a,b")'];
  expect(formulas.map(csvField)).toEqual([
    "'=1+1",
    "'+1",
    "'-1",
    "'@SUM(A1)",
    "'\t=1",
    `"'\r=1"`,
    `"'=HYPERLINK(""http://a,b"")"`,
  ]);
  expect([-1, 0].map(csvField)).toEqual(["-1", "0"]);
});
