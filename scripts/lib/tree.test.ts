// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { relativeLinks } from "./tree.ts";

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
