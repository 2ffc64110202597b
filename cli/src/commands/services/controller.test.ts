// SPDX-License-Identifier: Apache-2.0

import { join } from "node:path";
import { expect, test } from "vitest";
import { Home } from "../../../test/fixture.ts";

test("controller takes the options and the environment of several controllers on one database", async () => {
  using home = new Home();
  const state = join(home.directory, "controller");
  const args = ["controller", "--state", state, "--listen", "127.0.0.1:0", "--advertise", "https://c1:7170"];
  // No process listens at port 1.
  const environment = { MILLPOND_STORE: "postgres://127.0.0.1:1/millpond" };
  const result = await home.millpond(args, { environment });
  expect(result).toMatchObject({ code: 119, stdout: "" });
  expect(result.stderr).toMatch(/ECONNREFUSED 127\.0\.0\.1:1.*\n.*\n {2}\[MILLPOND_E_STORE_UNREACHABLE\]\n$/);
});
