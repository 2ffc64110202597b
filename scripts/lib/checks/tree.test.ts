// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { decisionFaults, relativeLinks, walkOf } from "./tree.ts";

test("finds relative links and nothing else", () => {
  const text = [
    "[a](docs/a.md) and [b](../b.md#part), [web](https://example.com), [mail](mailto:a@example.com), [here](#part)",
    "`[code](no.md)`",
    "```sh",
    "[fenced](no.md)",
    "```",
    "[c](c)",
  ].join("\n");
  expect(relativeLinks(text)).toEqual(["docs/a.md", "../b.md", "c"]);
});

test("decision records need a number of their own, a status with a date, and a line in the index", () => {
  const good = "# 0001 Rings\n\nStatus: accepted. Date: 2026-01-30.\n";
  const index = "[Rings](0001-rings.md) [Turns](0001-turns.md)";
  expect(decisionFaults(new Map([["0001-rings.md", good]]), index)).toEqual([]);
  const bad = new Map([
    ["0001-rings.md", good],
    ["0001-turns.md", good],
    ["0002-gates.md", "# Gates\n"],
  ]);
  expect(decisionFaults(bad, index)).toEqual([
    "0001-turns.md: its number is that of 0001-rings.md",
    "0002-gates.md: its title does not begin with its number",
    "0002-gates.md: no status and date",
    "0002-gates.md: not in docs/decisions/README.md",
  ]);
});

test("the table of decisions names files and what to look for in them", () => {
  const page = [
    "| other | [`a`](a.ts): `first` |",
    "### Where to find it",
    "| question | place |",
    "|---|---|",
    "| is it there? | [`b.ts`](src/b.ts): `isThere` |",
    "## Next",
    "| other | [`c`](c.ts): `third` |",
  ].join("\n");
  expect(walkOf(page)).toEqual([{ path: "src/b.ts", name: "isThere" }]);
  expect(walkOf("# Nothing")).toEqual([]);
});
