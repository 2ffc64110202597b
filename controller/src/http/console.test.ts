// SPDX-License-Identifier: Apache-2.0

// Logins to the web console by browsers, and forged requests by hostile pages.

import { once } from "node:events";
import { type IncomingMessage, request, type RequestOptions } from "node:http";
import { createClient } from "@connectrpc/connect";
import { AccessService, QueueService } from "@millpond/api";
import { expect, test } from "vitest";
import { loginSeconds } from "../auth/active-logins.ts";
import { codeSeconds } from "../auth/login-sessions.ts";
import { GiB, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

const page = { "millpond-console": "1", "sec-fetch-site": "same-origin" };

function send(pool: TestPool, path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`${pool.controller.url}${path}`, { redirect: "manual", ...init });
}

function post(body: unknown, headers: Record<string, string> = page): RequestInit {
  return {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  };
}

/** The cookie of a login, as the browser sends it back. */
async function logIn(pool: TestPool, login: { readonly token: string } | { readonly code: string }) {
  const response = await send(pool, "/console/session", post(login));
  const set = response.headers.get("set-cookie") ?? "";
  return { response, set, cookie: set.split(";")[0] ?? "" };
}

const listNodes = "/millpond.v1.PoolService/ListNodes";

test("a login lets the page call what its token may, from a cookie that no script and no other site can use", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const { response, set, cookie } = await logIn(pool, { token: pool.controller.userToken });
  expect(await response.json()).toEqual({ name: "file:user", role: "admin", tenant: "" });
  expect(set).toMatch(/^millpond-[0-9a-f]{8}=[\w-]+; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/);
  expect(set).not.toContain(pool.controller.userToken);
  const json = await send(pool, listNodes, post({}, { ...page, cookie }));
  expect(await json.json()).toMatchObject({ nodes: [{ name: "node-a" }] });
  // The page itself sends binary protobuf, which the server handles on another path.
  const binary = await send(pool, listNodes, {
    method: "POST",
    headers: { ...page, cookie, "content-type": "application/proto" },
    body: new Uint8Array(),
  });
  expect([binary.status, (await binary.arrayBuffer()).byteLength > 50]).toEqual([200, true]);
  const who = await send(pool, "/console/session", { headers: { ...page, cookie } });
  expect(await who.json()).toMatchObject({ role: "admin" });
  const out = await send(pool, "/console/session", { method: "DELETE", headers: { ...page, cookie } });
  expect([out.status, out.headers.get("set-cookie")]).toEqual([204, expect.stringContaining("=; Path=/;")]);
});

test("a request of another site's page is not by whoever is logged in", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const { cookie } = await logIn(pool, { token: pool.controller.userToken });
  const { host } = new URL(pool.controller.url);
  const foreign: Record<string, string>[] = [
    { cookie },
    { cookie, "sec-fetch-site": "same-origin" },
    { cookie, "millpond-console": "1", "sec-fetch-site": "cross-site" },
    { cookie, "millpond-console": "1", "sec-fetch-site": "same-site" },
    { cookie, "millpond-console": "1", "sec-fetch-site": "none" },
    { cookie, "millpond-console": "1", origin: "http://evil.example" },
    { cookie, "millpond-console": "1", origin: `http://${host}.evil.example` },
    { cookie, "millpond-console": "1", origin: "null" },
  ];
  for (const headers of foreign) {
    const options = { method: "POST", headers: { "content-type": "application/json", ...headers } };
    expect(await sendRaw(pool, listNodes, options), JSON.stringify(headers)).toBe(401);
    expect(await sendRaw(pool, "/console/session", options), JSON.stringify(headers)).toBe(403);
  }
  const own = { cookie, "millpond-console": "1", origin: pool.controller.url };
  const headers = { "content-type": "application/json", ...own };
  expect(await sendRaw(pool, listNodes, { method: "POST", headers })).toBe(200);
});

/** `fetch` adds headers of its own and normalizes paths. */
async function sendRaw(
  pool: TestPool,
  path: string,
  options: RequestOptions = {},
): Promise<number | undefined> {
  const call = request(pool.controller.url, { path, ...options });
  call.end("{}");
  const [response] = (await once(call, "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode;
}

test("a login ends with its token, after twelve hours, and is good at no other pool", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const other = await TestPool.start();
  const access = createClient(AccessService, makeTransport(pool.controller.url, pool.controller.userToken));
  const { secret } = await access.createToken({ name: "ann", role: "admin" });
  const call = async (cookie: string, at = pool) =>
    (await send(at, listNodes, post({}, { ...page, cookie }))).status;
  const ann = await logIn(pool, { token: secret });
  const file = await logIn(pool, { token: pool.controller.userToken });
  expect([await call(ann.cookie), await call(file.cookie)]).toEqual([200, 200]);
  await access.revokeToken({ name: "ann" });
  expect(await call(ann.cookie)).toBe(401);
  const [, sealed = ""] = file.cookie.split("=");
  const forged = `${sealed.startsWith("A") ? "B" : "A"}${sealed.slice(1)}`;
  for (const value of [forged, sealed.slice(0, -4), "", "x"]) {
    expect(await call(file.cookie.replace(sealed, value))).toBe(401);
  }
  const otherName = (await logIn(other, { token: other.controller.userToken })).cookie.split("=")[0];
  expect(await call(`${otherName}=${sealed}`, other)).toBe(401);
  // The answering controller and its start time are the same with a login as with a token.
  await pool.restart();
  expect(await call(file.cookie)).toBe(200);
  pool.clock.advance((loginSeconds - 1) * 1000);
  expect(await call(file.cookie)).toBe(200);
  pool.clock.advance(1000);
  expect(await call(file.cookie)).toBe(401);
});

test("a login code is good once, and for ten minutes", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const admin = makeTransport(pool.controller.url, pool.controller.userToken);
  await createClient(QueueService, admin).putTenant({ tenant: { name: "team-a" } });
  const access = createClient(AccessService, admin);
  const { secret } = await access.createToken({ name: "ann", role: "user", tenant: "team-a" });
  const ann = createClient(AccessService, makeTransport(pool.controller.url, secret));
  const { code } = await ann.createLoginCode({});
  const first = await logIn(pool, { code });
  expect(await first.response.json()).toEqual({ name: "ann", role: "user", tenant: "team-a" });
  const second = await logIn(pool, { code });
  expect([second.response.status, second.set]).toEqual([401, ""]);
  expect(await second.response.text()).toContain("has been used, or has expired");
  const late = await ann.createLoginCode({});
  pool.clock.advance(codeSeconds * 1000);
  expect((await logIn(pool, { code: late.code })).response.status).toBe(401);
});

test("programs and agents cannot log in, and what is no login is refused", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  await pool.claims.createClaim({ claim: { name: "own", memoryBytes: 1n << 20n } });
  const { secret } = await pool.claims.createClaimToken({ name: "own" });
  for (const [token, status] of [
    [secret, 403],
    [pool.controller.agentToken, 403],
    ["no-such-token-0000000", 401],
    ["with\r\nset-cookie: a=b", 401],
  ] as const) {
    const { response, set } = await logIn(pool, { token });
    expect([response.status, set], token).toEqual([status, ""]);
  }
  for (const body of ["{", "[]", "null", '{"token":1}', '"x"', `"${"x".repeat(5000)}"`]) {
    const init = { ...post({}), body };
    expect((await send(pool, "/console/session", init)).status, body.slice(0, 20)).toBe(400);
  }
});

test("every answer of the console forbids frames, foreign content and inline scripts", async () => {
  const pool = await TestPool.start();
  for (const path of ["/console/", "/console/claims/x", "/console/session", "/console/none.js", "/"]) {
    const { headers } = await send(pool, path);
    const policy = headers.get("content-security-policy") ?? "";
    expect(policy, path).toMatch(/default-src 'none'.*frame-ancestors 'none'/);
    expect(policy, path).not.toMatch(/unsafe|\*|https?:|data:|blob:/);
    expect(headers.get("x-frame-options"), path).toBe("DENY");
    expect(headers.get("x-content-type-options"), path).toBe("nosniff");
    expect(headers.get("access-control-allow-origin"), path).toBeNull();
  }
  for (const path of ["/console/../package.json", "/console/..%2fpackage.json", "/console/.env"]) {
    expect(await sendRaw(pool, path), path).toBe(404);
  }
  // Node names contain dots.
  expect(await sendRaw(pool, "/console/nodes/ip-10-0-0-1.ec2.internal", { method: "GET" })).toBe(200);
});
