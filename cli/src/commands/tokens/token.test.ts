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
    'error: "list audit" needs a token of the role tenant-admin, this token has the role user\n',
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

test("whoami shows whose token it is, its rights and its end, also to a program and an agent", async () => {
  const { home } = pool;
  const secretOf = async (...args: readonly string[]): Promise<string> =>
    (await home.millpond(["token", "create", ...args])).stdout.trim();
  const whoami = async (token: string): Promise<unknown> =>
    JSON.parse((await home.millpond(["whoami", "-o", "json", "--token", token])).stdout);
  const bob = await secretOf("bob", "--role", "tenant-admin", "--expires", "90d");
  expect(await whoami(bob)).toMatchObject({
    kind: "Caller",
    name: "bob",
    role: "tenant-admin",
    tenant: "default",
    expiresAt: expect.stringMatching(/^\d{4}-.*Z$/),
    controller: expect.stringMatching(/^http:/),
  });
  const node = await secretOf("node-7", "--role", "agent", "--node", "node-7");
  expect(await whoami(node)).toMatchObject({ role: "agent", tenant: "", node: "node-7", expiresAt: null });
  const env = await home.millpond(["env", "-m", "1Mi", "--token", bob]);
  const program = /MILLPOND_TOKEN='?(mp-program-[^'\s]+)/.exec(env.stdout)?.[1] ?? "";
  const { expiresAt } = (await whoami(bob)) as { readonly expiresAt: string };
  expect(await whoami(program)).toMatchObject({ name: "program:bob", role: "program", expiresAt });
  const admin = await home.millpond(["whoami"]);
  expect(admin.stdout).toMatch(/^name +file:user\nrole +admin\ntenant +all\nexpires +never\n/);
  const unknown = await home.millpond(["whoami", "--token", "no-such-token-0000000"]);
  expect(unknown).toMatchObject({ code: 120, stdout: "" });
});
