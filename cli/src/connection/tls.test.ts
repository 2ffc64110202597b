// SPDX-License-Identifier: Apache-2.0

// Everything over TLS: agent, commands, and a program.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeAuthority } from "@millpond/platform";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fakeClient, PoolFixture } from "../../test/fixture.ts";

let pool: PoolFixture;
beforeAll(async () => {
  pool = await PoolFixture.start({ tls: true });
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

test("a program runs on a pool whose controller has TLS", async () => {
  expect(pool.connection.controller).toMatch(/^https:/);
  expect((await pool.home.millpond(["get", "nodes", "-o", "name"])).stdout).toBe("node/node-a\n");
  const ran = await pool.home.millpond(["run", "-m", "1Gi", "--", ...fakeClient]);
  expect(ran).toMatchObject({ code: 0, stdout: "attached over shm\n" });
});

test("a client that trusts another authority, or none, reports that", async () => {
  const { directory } = pool.home;
  const validity = { from: new Date(0), to: new Date(Date.now() + 3_600_000) };
  writeFileSync(join(directory, "other.crt"), makeAuthority("Other", validity).certificate);
  const withCa = async (name: string) =>
    (await pool.home.millpond(["get", "nodes"], { environment: { MILLPOND_CA: join(directory, name) } }))
      .stderr;
  expect(await withCa("ca.crt")).toBe("");
  expect(await withCa("other.crt")).toMatch(
    /is not trusted: .*authority[^]*MILLPOND_CA[^]*\[MILLPOND_E_TLS\]/,
  );
  expect(await withCa("tls.key")).toMatch(/certificate in .*tls\.key cannot be read[^]*\[MILLPOND_E_TLS\]/);
  const elsewhere = pool.connection.controller.replace("127.0.0.1", "localhost");
  const misnamed = await pool.home.millpond(["get", "nodes", "--controller", elsewhere], {
    environment: { MILLPOND_CA: join(directory, "ca.crt") },
  });
  expect(misnamed.stderr).toContain(`its certificate is for "127.0.0.1", not for localhost`);
});

test("an environment for programs brings the authority along", async () => {
  const { stdout } = await pool.home.millpond(["env"]);
  expect(stdout).toContain(`export MILLPOND_CONTROLLER=${pool.connection.controller}\n`);
  expect(stdout).toMatch(/^export MILLPOND_CA='-----BEGIN CERTIFICATE-----\n[^']+'$/m);
});
