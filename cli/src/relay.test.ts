// SPDX-License-Identifier: Apache-2.0

// Everything over TLS: agent, commands, and a program whose library has none.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeAuthority } from "@millpond/api";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fakeClient, PoolFixture } from "../test/fixture.ts";
import { startRelay } from "./relay.ts";

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

test("whoever trusts another authority, or none, says so", async () => {
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
  expect(misnamed.stderr).toContain("for other names than the one in the address");
});

test("the relay passes on what the library calls and nothing else", async () => {
  const { controller, token } = pool.connection;
  const post = async (url: string, method: string) =>
    await fetch(`${url}/millpond.v1.${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
      body: '{"name": "nobody"}',
    });
  await using relay = await startRelay({
    controller,
    ca: readFileSync(join(pool.home.directory, "ca.crt"), "utf8"),
  });
  const known = await post(relay.url, "ClaimService/ReleaseClaim");
  expect([known.status, await known.text()]).toEqual([404, expect.stringContaining("no claim")]);
  const other = await post(relay.url, "ClaimService/ListClaims");
  expect([other.status, await other.text()]).toEqual([404, expect.stringContaining("the relay passes on")]);
  await using blind = await startRelay({ controller });
  const untrusted = await post(blind.url, "ClaimService/ReleaseClaim");
  expect([untrusted.status, await untrusted.text()]).toEqual([
    400,
    expect.stringContaining("MILLPOND_E_TLS"),
  ]);
  await using several = await startRelay({
    controller: `https://127.0.0.1:1,${controller}`,
    ca: readFileSync(join(pool.home.directory, "ca.crt"), "utf8"),
  });
  // The library calls again.
  expect((await post(several.url, "ClaimService/ReleaseClaim")).status).toBe(502);
  expect((await post(several.url, "ClaimService/ReleaseClaim")).status).toBe(404);
  await using lost = await startRelay({ controller: "https://127.0.0.1:1" });
  expect((await post(lost.url, "ClaimService/ReleaseClaim")).status).toBe(502);
});

test("what a program's own library cannot reach is not put into an environment", async () => {
  expect((await pool.home.millpond(["env"])).stderr).toContain("[MILLPOND_E_TLS]");
});
