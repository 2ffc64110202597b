// SPDX-License-Identifier: Apache-2.0

// Logins by an OpenID provider, with browsers, attackers and broken providers.

import { generateKeyPairSync, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { QueueService } from "@millpond/api";
import { describe, expect, onTestFinished, test } from "vitest";
import { loginSeconds } from "../auth/active-logins.ts";
import { hmacOf, makeJwt, OpenIdProvider } from "../testing/openid-provider.ts";
import { GiB, makeTestDirectory, TestPool } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

const rules = [
  { group: "gpu-admins", role: "admin" },
  { group: "vision-leads", role: "tenant-admin", tenant: "vision" },
  { group: "vision", role: "user", tenant: "vision" },
];

async function startLogin(more: Readonly<Record<string, unknown>> = {}) {
  const provider = await OpenIdProvider.start({
    clientId: "millpond",
    clientSecret: "s3cret",
    now: () => pool.clock.unixMs() / 1000,
  });
  onTestFinished(() => provider[Symbol.asyncDispose]());
  const directory = makeTestDirectory();
  const path = join(directory, "oidc.json");
  const configure = (changes: Readonly<Record<string, unknown>>) =>
    writeFileSync(
      path,
      JSON.stringify({
        issuer: provider.issuer,
        clientId: "millpond",
        clientSecretFile: "secret",
        label: "Example",
        rules,
        ...changes,
      }),
    );
  writeFileSync(join(directory, "secret"), "s3cret\n");
  configure(more);
  const pool: TestPool = await TestPool.start({ "node-a": [GiB] }, { oidc: path });
  return { provider, pool, configure };
}

/** A browser: its cookies, and the address to which it was last redirected. */
class Tab {
  readonly #pool: TestPool;
  readonly cookies = new Map<string, string>();
  readonly attributes = new Map<string, string>();

  constructor(pool: TestPool) {
    this.#pool = pool;
  }

  async get(url: string, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
    const { url: own } = this.#pool.controller;
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(new URL(url, own), {
      redirect: "manual",
      headers: { ...headers, ...(new URL(url, own).origin === own && cookie !== "" && { cookie }) },
    });
    for (const set of response.headers.getSetCookie()) {
      const [pair = "", ...attributes] = set.split("; ");
      const [name = "", value = ""] = pair.split("=");
      this.attributes.set(name, attributes.join("; "));
      if (value === "") this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    return response;
  }

  /**
   * Begins a login and goes to the provider. Returns the address, with the provider's answer, to which the provider
   * redirects the browser.
   */
  async begin(to = "/console/"): Promise<string> {
    const start = await this.get(`/console/oidc/login?to=${encodeURIComponent(to)}`);
    expect(start.status).toBe(302);
    const asked = await this.get(locationOf(start));
    return locationOf(asked);
  }

  async logIn(to?: string): Promise<string> {
    return locationOf(await this.get(await this.begin(to)));
  }

  async who(): Promise<Readonly<Record<string, unknown>>> {
    const page = { "millpond-console": "1", "sec-fetch-site": "same-origin" };
    const response = await this.get("/console/session", page);
    return (await response.json()) as Readonly<Record<string, unknown>>;
  }

  async listNodes(): Promise<number> {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const page = { "millpond-console": "1", "sec-fetch-site": "same-origin", cookie };
    const response = await fetch(`${this.#pool.controller.url}/millpond.v1.PoolService/ListNodes`, {
      method: "POST",
      headers: { ...page, "content-type": "application/json" },
      body: "{}",
    });
    return response.status;
  }
}

function locationOf(response: Response): string {
  return response.headers.get("location") ?? "";
}

describe("a login by an OpenID provider", () => {
  test("gives the role and tenant of the first rule that fits, in a strict cookie, and returns to the view", async () => {
    const { provider, pool } = await startLogin();
    const tab = new Tab(pool);
    expect(await tab.who()).toMatchObject({ provider: "Example" });
    for (const [groups, who] of [
      [["other", "vision"], { name: "oidc:ann", role: "user", tenant: "vision" }],
      [["vision", "vision-leads"], { name: "oidc:ann", role: "tenant-admin", tenant: "vision" }],
      ["gpu-admins", { name: "oidc:ann", role: "admin", tenant: "" }],
    ] as const) {
      provider.claims = { sub: "ann", groups };
      expect(await tab.logIn("/console/claims?q=big&sort=-age")).toBe("/console/claims?q=big&sort=-age");
      expect(await tab.who()).toEqual({ ...who, provider: "Example" });
      expect(await tab.listNodes()).toBe(200);
    }
    const [session = ""] = [...tab.cookies.keys()];
    expect([tab.cookies.size, tab.attributes.get(session)]).toEqual([
      1,
      `Path=/; HttpOnly; SameSite=Strict; Max-Age=${loginSeconds}`,
    ]);
    expect(tab.attributes.get(`${session}-oidc`)).toBe("Path=/; HttpOnly; SameSite=Lax; Max-Age=0");
    expect(tab.cookies.get(session)).not.toContain("mp-oidc");
  });

  test("ends after twelve hours and with its rule, not with a restart", async () => {
    const { provider, pool, configure } = await startLogin();
    const tab = new Tab(pool);
    provider.claims = { sub: "ann", groups: ["vision"] };
    await tab.logIn();
    configure({ rules: [...rules, { group: "speech", role: "user", tenant: "speech" }] });
    await pool.restart();
    expect(await tab.listNodes()).toBe(200);
    configure({ rules: rules.filter(({ group }) => group !== "vision") });
    await pool.restart();
    expect(await tab.listNodes()).toBe(401);
    configure({});
    await pool.restart();
    pool.clock.advance((loginSeconds - 1) * 1000);
    expect(await tab.listNodes()).toBe(200);
    pool.clock.advance(1000);
    expect(await tab.listNodes()).toBe(401);
  });

  test("is taken after the provider has another key, and within the difference of clocks that is allowed", async () => {
    const { provider, pool } = await startLogin({ clockToleranceSeconds: 20 });
    const tab = new Tab(pool);
    provider.claims = { sub: "ann", groups: ["vision"] };
    await tab.logIn();
    provider.rotateKey();
    expect(await tab.logIn()).toBe("/console/");
    expect(await tab.who()).toMatchObject({ name: "oidc:ann" });
    const now = pool.clock.unixMs() / 1000;
    for (const [claims, isTaken] of [
      [{ iat: now - 319, exp: now - 19 }, true],
      [{ iat: now - 330, exp: now - 30 }, false],
      [{ iat: now, nbf: now + 15 }, true],
      [{ iat: now, nbf: now + 30 }, false],
    ] as const) {
      provider.forgeClaims = (given) => ({ ...given, ...claims });
      expect(await tab.logIn(), JSON.stringify(claims)).toBe(isTaken ? "/console/" : "/console/login");
    }
  });

  test("is refused for a forged, foreign or expired ID token, with one error that says what is wrong", async () => {
    const { provider, pool } = await startLogin();
    provider.claims = { sub: "ann", groups: ["gpu-admins"] };
    const now = pool.clock.unixMs() / 1000;
    const other = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const signOther = (text: string) => sign("sha256", Buffer.from(text), other.privateKey);
    const forgedClaims: readonly (readonly [Readonly<Record<string, unknown>>, RegExp])[] = [
      [{ iss: "http://127.0.0.1:1" }, /not for this login of this pool/],
      [{ aud: "another-client" }, /not for this login of this pool/],
      [{ aud: ["millpond", "another"], azp: "another" }, /not for this login of this pool|not valid/],
      [{ nonce: "0".repeat(43) }, /not for this login of this pool/],
      [{ nonce: undefined }, /not valid|not for this login/],
      [{ exp: now - 3600 }, /has expired, or is not valid yet/],
      [{ exp: undefined }, /not valid/],
      [{ sub: undefined }, /not valid/],
    ];
    for (const [forged, message] of forgedClaims) {
      const tab = new Tab(pool);
      provider.forgeClaims = (claims) => ({ ...claims, ...forged });
      expect(await tab.logIn(), JSON.stringify(forged)).toBe("/console/login");
      expect((await tab.who())["trouble"], JSON.stringify(forged)).toMatch(message);
      expect(await tab.listNodes()).toBe(401);
      // Said once.
      expect((await tab.who())["trouble"]).toBeUndefined();
    }
    provider.forgeClaims = (claims) => claims;
    const forgedTokens: Readonly<Record<string, typeof provider.forgeToken>> = {
      "alg none": (claims) => makeJwt({ alg: "none" }, claims, () => Buffer.alloc(0)),
      "another key under the same name": (claims, { kid }) =>
        makeJwt({ alg: "RS256", kid }, claims, signOther),
      "a key that is not published": (claims) => makeJwt({ alg: "RS256", kid: "own" }, claims, signOther),
      "a key that it brings itself": (claims) =>
        makeJwt({ alg: "RS256", jwk: other.publicKey.export({ format: "jwk" }) }, claims, signOther),
      "the public key as a secret": (claims, { kid, publicKey }) => {
        const pem = Buffer.from(publicKey.export({ format: "pem", type: "spki" })).toString("utf8");
        return makeJwt({ alg: "HS256", kid }, claims, hmacOf(pem));
      },
      "the client's secret": (claims) => makeJwt({ alg: "HS256" }, claims, hmacOf("s3cret")),
      "no token": () => "x.y.z",
    };
    for (const [what, forge] of Object.entries(forgedTokens)) {
      const tab = new Tab(pool);
      provider.forgeToken = forge;
      expect(await tab.logIn(), what).toBe("/console/login");
      expect((await tab.who())["trouble"], what).toMatch(/MILLPOND_E_UNAUTHENTICATED/);
      expect(await tab.listNodes(), what).toBe(401);
    }
  });

  test("is refused to users whom no rule is for, or whom nothing names", async () => {
    const { provider, pool } = await startLogin({ nameClaim: "email" });
    const named = { sub: "1", email: "ann@example.org", email_verified: true };
    for (const [claims, message] of [
      [{ ...named, groups: ["vision"] }, undefined],
      [
        { ...named, groups: ["Vision", "vision "] },
        /no rule of this pool is for the groups "Vision", "vision "/,
      ],
      [named, /a user without groups/],
      [{ ...named, groups: { vision: true } }, /a user without groups/],
      [{ ...named, groups: ["vision"], email_verified: false }, /has not verified the address/],
      [{ sub: "1", groups: ["vision"], email_verified: true }, /no email that can name a user/],
      [{ ...named, groups: ["vision"], email: "a\nb" }, /no email that can name a user/],
      [{ ...named, groups: ["vision"], email: `${"é".repeat(40)}@a` }, /in at most 64 bytes/],
    ] as const) {
      const tab = new Tab(pool);
      provider.claims = claims;
      const isTaken = message === undefined;
      expect(await tab.logIn(), JSON.stringify(claims)).toBe(isTaken ? "/console/" : "/console/login");
      const who = await tab.who();
      if (isTaken) expect(who).toMatchObject({ name: "oidc:ann@example.org" });
      else expect(who["trouble"], JSON.stringify(claims)).toMatch(message);
    }
  });

  test("is good once, in the browser that has begun it, within ten minutes", async () => {
    const { provider, pool } = await startLogin();
    provider.claims = { sub: "ann", groups: ["vision"] };
    const refused = async (tab: Tab, answer: string, why: RegExp) => {
      expect(locationOf(await tab.get(answer))).toBe("/console/login");
      expect((await tab.who())["trouble"]).toMatch(why);
      expect(await tab.listNodes()).toBe(401);
    };
    // An answer with an attacker's code, opened in the victim's browser.
    const attacker = new Tab(pool);
    const attackers = await attacker.begin();
    await refused(new Tab(pool), attackers, /this browser has started no login/);
    const victim = new Tab(pool);
    await victim.begin();
    await refused(victim, attackers, /the answer is for another login/);
    // The same answer again, with the same cookie.
    const tab = new Tab(pool);
    const answer = await tab.begin();
    const before = new Map(tab.cookies);
    expect(locationOf(await tab.get(answer))).toBe("/console/");
    const replay = new Tab(pool);
    for (const [name, value] of before) replay.cookies.set(name, value);
    await refused(replay, answer, /this login was already completed/);
    // The state is right, but the code belongs to another login.
    const swapped = new Tab(pool);
    const own = new URL(await swapped.begin());
    own.searchParams.set("code", new URL(await new Tab(pool).begin()).searchParams.get("code") ?? "");
    await refused(swapped, own.href, /the OpenID provider answers invalid_grant/);
    const late = new Tab(pool);
    const lateAnswer = await late.begin();
    pool.clock.advance(600_000);
    await refused(late, lateAnswer, /in the last ten minutes/);
    // A cookie of another kind is not accepted.
    const mixed = new Tab(pool);
    const mixedAnswer = await mixed.begin();
    const [name = ""] = mixed.cookies.keys();
    await tab.logIn();
    mixed.cookies.set(name, [...tab.cookies.values()][0] ?? "");
    await refused(mixed, mixedAnswer, /this browser has started no login/);
  });

  test("leads to no other site, and is begun by none", async () => {
    const { provider, pool } = await startLogin();
    provider.claims = { sub: "ann", groups: ["vision"] };
    for (const to of [
      "https://evil.example/console/",
      "//evil.example/console/",
      String.raw`/\evil.example/console/`,
      "/console//../../evil",
      "/console/../millpond.v1.PoolService/ListNodes",
      "/console/oidc/login",
      "/console/session",
      "javascript:alert(1)",
      `/console/${"x".repeat(600)}`,
      "/console/\r\nset-cookie: a=b",
    ]) {
      const location = await new Tab(pool).logIn(to);
      expect(new URL(location, pool.controller.url).origin, to).toBe(pool.controller.url);
      expect(location, to).toMatch(/^\/console\/[\w%/:=-]*$/);
      expect(location, to).not.toMatch(/oidc|session|^\/console\/\//);
    }
    for (const site of ["cross-site", "same-site"]) {
      const started = await new Tab(pool).get("/console/oidc/login", { "sec-fetch-site": site });
      expect(locationOf(started)).toBe("/console/login");
    }
    const { url } = pool.controller;
    for (const [path, method, status] of [
      ["/console/oidc/login", "POST", 405],
      ["/console/oidc/callback", "HEAD", 405],
      ["/console/oidc/other", "GET", 404],
    ] as const) {
      expect((await fetch(url + path, { method })).status, path).toBe(status);
    }
    const without = await TestPool.start();
    expect((await fetch(`${without.controller.url}/console/oidc/login`, { redirect: "manual" })).status).toBe(
      404,
    );
  });

  test("that the provider refuses, or cannot answer, says so and nothing else", async () => {
    const { provider, pool } = await startLogin();
    const tab = new Tab(pool);
    provider.error = "access_denied";
    expect(await tab.logIn()).toBe("/console/login");
    const { trouble } = await tab.who();
    expect(trouble).toMatch(/^the OpenID provider answers access_denied\. Log in again\./);
    provider.error = "<script>";
    await tab.logIn();
    expect((await tab.who())["trouble"]).toMatch(/^the OpenID provider answers an error\./);
    provider.error = "";
    const answer = await tab.begin();
    await provider[Symbol.asyncDispose]();
    expect(locationOf(await tab.get(answer))).toBe("/console/login");
    expect((await tab.who())["trouble"]).toMatch(/gives no usable answer.*MILLPOND_E_UNREACHABLE/);
    pool.clock.advance(60_000);
    expect(locationOf(await tab.get("/console/oidc/login"))).toBe("/console/login");
    expect((await tab.who())["trouble"]).toMatch(/gives no usable answer/);
  });

  test("is in the audit with its user, and its limits hold for the tokens of its programs", async () => {
    const { provider, pool } = await startLogin();
    const admin = makeTransport(pool.controller.url, pool.controller.userToken);
    const queues = createClient(QueueService, admin);
    // The limit for this user is set under a name that no token can have.
    const users = [{ user: "oidc:Ann@example.org", limit: { gpuMilli: 500n } }];
    await queues.putTenant({ tenant: { name: "vision", userLimits: { users } } });
    const tab = new Tab(pool);
    provider.claims = { sub: "Ann@example.org", groups: ["vision-leads"] };
    await tab.logIn();
    const cookie = [...tab.cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const page = { "millpond-console": "1", "sec-fetch-site": "same-origin", cookie };
    const call = async (method: string, body: unknown, caller: Record<string, string> = page) => {
      const response = await fetch(`${pool.controller.url}/millpond.v1.${method}`, {
        method: "POST",
        headers: { ...caller, "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      return await response.text();
    };
    await call("AccessService/CreateToken", { name: "ci", role: "user" });
    expect(await call("AccessService/ListTokens", {})).toContain('"createdBy":"oidc:Ann@example.org"');
    expect(await call("AccessService/ListAudit", {})).toContain('"who":"oidc:Ann@example.org"');
    expect(await call("ClaimService/CreateClaim", { claim: { name: "big", exclusive: true } })).toContain(
      "oidc:Ann@example.org",
    );
    const { secret } = JSON.parse(await call("ClaimService/CreateProgramToken", {}));
    const own = { name: "of-program", exclusive: true, sessionBound: true, leaseSeconds: 15 };
    const program = { authorization: `Bearer ${secret}` };
    expect(await call("ClaimService/CreateClaim", { claim: own }, program)).toContain("oidc:Ann@example.org");
    expect(await call("AccessService/ListTokens", {}, program)).toContain("MILLPOND_E_FORBIDDEN");
    expect(await call("QueueService/PutQueue", { queue: { name: "q" } })).toContain("MILLPOND_E_FORBIDDEN");
  });
});
