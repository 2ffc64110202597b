// SPDX-License-Identifier: Apache-2.0

import { afterAll, beforeAll, expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

let pool: PoolFixture;
beforeAll(async () => {
  pool = await PoolFixture.start();
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

test("a token is made, used, listed and revoked, and the audit says who did it and why", async () => {
  const { home } = pool;
  const made = await home.millpond([
    "token",
    "create",
    "ann",
    "--expires",
    "90d",
    "--reason",
    "new – colleague",
  ]);
  expect(made).toMatchObject({ code: 0, stdout: expect.stringMatching(/^mp-user-[\w-]{43}\n$/) });
  const secret = made.stdout.trim();
  expect((await home.millpond(["get", "claims", "--token", secret])).code).toBe(0);
  expect((await home.millpond(["get", "audit", "--token", secret])).stderr).toContain(
    "ListAudit needs a token of the role tenant-admin, this is one of the role user",
  );
  expect((await home.millpond(["token", "list"])).stdout).toMatch(
    /^NAME +ROLE +TENANT +NODE +AGE +EXPIRES +MADE-BY\nann +user +default +- +\d+s +in \w+ +file:user\n$/,
  );
  expect((await home.millpond(["token", "revoke", "ann"])).stdout).toBe("token/ann revoked\n");
  expect((await home.millpond(["get", "claims", "--token", secret])).stderr).toContain(
    "[MILLPOND_E_UNAUTHENTICATED]",
  );
  const { items } = JSON.parse((await home.millpond(["get", "audit", "-o", "json"])).stdout);
  expect(items).toMatchObject([
    { who: "file:agent", what: "AgentService/Sync", subject: "node/node-a", result: "ok" },
    { who: "file:user", what: "AccessService/CreateToken", subject: "token/ann", why: "new – colleague" },
    { who: "file:user", what: "AccessService/RevokeToken", subject: "token/ann", why: "", result: "ok" },
  ]);
  expect((await home.millpond(["token", "revoke"])).stderr).toContain("needs the name of a token");
});
