// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { Home } from "../../../test/fixture.ts";
import { documentMembers } from "../../claim/document-members.ts";
import { readDocuments } from "../../claim/documents.ts";

test("the members of a document are listed, and each is explained", async () => {
  using home = new Home();
  expect((await home.millpond(["explain", "tenant"])).stdout).toMatch(
    /^MEMBER +DEFAULT +MEANING\nname +required +Its name.*\nlimit +none .*\nuserLimit +none .*\nusers +none /,
  );
  const { stdout } = await home.millpond(["explain", "claim", "placement"]);
  expect(stdout).toMatch(/^Member: +placement\n/);
  expect(stdout).toMatch(/\nChoices: +least-fragmentation, binpack, spread\nOption: +--placement <policy>\n/);
  expect(await home.millpond(["explain", "queue", "colour"])).toMatchObject({
    code: 121,
    stderr: expect.stringContaining('a queue has no member "colour"'),
  });
});

test.each(["queue", "tenant", "claim"] as const)("a %s takes every member that is explained", (kind) => {
  const title = kind === "queue" ? "Queue" : kind === "tenant" ? "Tenant" : "Claim";
  for (const { name, example, choices } of documentMembers[kind]) {
    const value = example ?? choices?.[0];
    if (value !== undefined) {
      expect(readDocuments(`kind: ${title}\nname: a\n${name}: ${value}\n`, "file")).toHaveLength(1);
    }
  }
});
