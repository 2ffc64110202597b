// SPDX-License-Identifier: Apache-2.0

import { errorTable } from "@millpond/api";
import { expect, test } from "vitest";
import { Home } from "../../test/fixture.ts";
import { commandSpecs } from "../command-table/command-table.ts";

const flag = /--[a-z][a-z-]*/g;

test("remedies of the error table name options that there are", async () => {
  using home = new Home();
  const helps = await Promise.all(
    ["agent", "controller"].map((command) => home.millpond([command, "--help"])),
  );
  const known = new Set(helps.flatMap(({ stdout }) => stdout.match(flag) ?? []));
  // A user whose node name is refused has just started an agent.
  expect(errorTable.MILLPOND_E_NODE_NAME_TAKEN.remedy.match(flag)).toEqual(["--name"]);
  expect(helps[0]?.stdout).toContain("--name ");
  for (const { options } of Object.values(commandSpecs)) {
    for (const { flags } of Object.values(options))
      for (const each of flags.match(flag) ?? []) known.add(each);
  }
  for (const { remedy } of Object.values(errorTable)) {
    for (const each of remedy.match(flag) ?? []) expect(known).toContain(each);
  }
});
