// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { referenceDocUrl, renderReferenceDoc } from "./reference-doc.ts";

test("docs/reference/cli.md is what the command table makes: npm run generate -w cli", () => {
  expect(readFileSync(referenceDocUrl, "utf8")).toBe(renderReferenceDoc());
});
