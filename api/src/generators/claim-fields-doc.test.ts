// SPDX-License-Identifier: Apache-2.0

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  claimFieldsDocUrl,
  claimVariablesHeaderUrl,
  renderClaimFieldsDoc,
  renderClaimVariablesHeader,
} from "./claim-fields-doc.ts";

test("generated pages are what their tables make: npm run generate -w api", () => {
  expect(readFileSync(claimFieldsDocUrl, "utf8")).toBe(renderClaimFieldsDoc());
  expect(readFileSync(claimVariablesHeaderUrl, "utf8")).toBe(renderClaimVariablesHeader());
});
