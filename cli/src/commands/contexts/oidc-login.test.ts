// SPDX-License-Identifier: Apache-2.0
// `millpond login --oidc` against a provider: the browser is one that follows redirects and keeps cookies.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { testLog } from "@millpond/agent/testing/fixture";
import { type Controller, startController } from "@millpond/controller";
import { OpenIdProvider } from "@millpond/controller/testing/openid-provider";
import { afterAll, beforeAll, expect, test } from "vitest";
import { entry } from "../../../test/entry.ts";
import { Home, Running } from "../../../test/fixture.ts";

let home: Home;
let provider: OpenIdProvider;
let controller: Controller;
/** A pool without a provider. */
let plain: Controller;

beforeAll(async () => {
  home = new Home();
  provider = await OpenIdProvider.start({
    clientId: "millpond",
    clientSecret: "s3cret",
    now: () => Math.floor(Date.now() / 1000),
  });
  const oidc = join(home.directory, "oidc.json");
  writeFileSync(join(home.directory, "secret"), "s3cret");
  const config = {
    issuer: provider.issuer,
    clientId: "millpond",
    clientSecretFile: "secret",
    label: "Example",
    rules: [
      { group: "gpu-admins", role: "admin" },
      { group: "vision", role: "user", tenant: "default" },
    ],
  };
  writeFileSync(oidc, JSON.stringify(config));
  const at = { listen: "127.0.0.1:0", log: testLog };
  controller = await startController({ ...at, stateDirectory: join(home.directory, "controller"), oidc });
  plain = await startController({ ...at, stateDirectory: join(home.directory, "plain") });
});
afterAll(async () => {
  await Promise.all([
    controller[Symbol.asyncDispose](),
    plain[Symbol.asyncDispose](),
    provider[Symbol.asyncDispose](),
  ]);
  home[Symbol.dispose]();
});

/** Follows a link as a browser does, up to an address that satisfies `isEnd`. Returns the last answer, or that address. */
async function browse(link: string, isEnd: (url: URL) => boolean = () => false) {
  const cookies = new Map<string, string>();
  let url = new URL(link);
  for (let hop = 0; hop < 10; hop += 1) {
    if (isEnd(url)) return { url, text: "", cookies };
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, {
      redirect: "manual",
      headers: { "sec-fetch-site": "none", ...(url.origin === controller.url && { cookie }) },
    });
    for (const set of response.headers.getSetCookie()) {
      const [name = "", value = ""] = (set.split(";")[0] ?? "").split("=");
      if (value === "") cookies.delete(name);
      else cookies.set(name, value);
    }
    const next = response.headers.get("location");
    if (next === null) return { url, text: await response.text(), cookies };
    url = new URL(next, url);
  }
  throw new Error("too many redirects");
}

async function linkOf(login: Running): Promise<string> {
  await login.says("stderr", /\/console\/oidc\/login\?\S+\n/);
  return /http\S+\/console\/oidc\/login\?\S+/.exec(login.stderr)?.[0] ?? "";
}

function start(...more: readonly string[]): Running {
  return home.start(["login", controller.url, "--oidc", "--name", "lab", ...more]);
}

/** The last address, which the browser cannot open, because it is on another machine. */
const isLanding = ({ origin, searchParams }: URL) => origin !== controller.url && searchParams.has("code");

test("a browser's login is the command's, which then uses the pool as that user", async () => {
  provider.claims = { sub: "ann", groups: ["vision"] };
  const login = start();
  const { text, cookies } = await browse(await linkOf(login));
  expect(text).toMatch(/^The command line has your login/);
  // The browser itself is not logged in.
  expect([...cookies]).toEqual([]);
  const result = await login.finished;
  expect(result).toMatchObject({ code: 0 });
  expect(result.stdout).toMatch(
    /^logged in to http:\S+ as oidc:ann \(user of default\) until \d{4}-\d\d-\d\d.*; the current context is lab /,
  );
  expect(result.stdout + result.stderr).not.toMatch(/mp-oidc-/);
  expect(await home.millpond(["get", "claims"])).toMatchObject({ code: 0, stderr: "no claims\n" });
  const who = await home.millpond(["whoami"]);
  expect(who.stdout).toMatch(
    /^name +oidc:ann\nrole +user\ntenant +default\nexpires +\S+Z \(in 1[12]h\S*\)\ncontroller +http:\S+\nfrom +context lab in /,
  );
  const denied = await home.millpond(["queue", "create", "a"]);
  expect(denied.stderr).toMatch(/role admin[^]*\[MILLPOND_E_FORBIDDEN\]/);
  // Programs of the user get GPUs for as long as the login lasts.
  const env = await home.millpond(["env", "-m", "1Gi"]);
  expect(env).toMatchObject({ code: 0, stderr: expect.stringMatching(/ have GPUs until \d{4}-\S+Z, when/) });
  const token = /MILLPOND_TOKEN='?(mp-program-[^'\s]+)/.exec(env.stdout)?.[1] ?? "";
  const claim = { name: "of-ann", sessionBound: true, leaseSeconds: 600, memoryBytes: "1073741824" };
  const made = await fetch(`${controller.url}/millpond.v1.ClaimService/CreateClaim`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ claim }),
  });
  expect(await made.json()).toMatchObject({ claim: { name: "of-ann", tenant: "default" } });
  expect((await home.millpond(["get", "claims"])).stdout).toContain("of-ann");
  provider.claims = { sub: "bob", groups: ["gpu-admins"] };
  const admin = start();
  await browse(await linkOf(admin));
  expect((await admin.finished).stdout).toContain("as oidc:bob (admin) until");
  expect(await home.millpond(["queue", "create", "a"])).toMatchObject({ code: 0 });
  const audit = await home.millpond(["get", "audit", "-o", "json"]);
  expect(audit.stdout).toContain('"oidc:bob"');
});

test("logins are listed and ended one by one, and a logout ends the login with its programs", async () => {
  provider.claims = { sub: "carl", groups: ["vision"] };
  const login = start();
  await browse(await linkOf(login));
  await login.finished;
  const storedToken = (): string => JSON.parse(readFileSync(home.config, "utf8")).contexts.lab.token;
  const carl = storedToken();
  const listed = await home.millpond(["get", "logins"]);
  expect(listed.stdout).toMatch(
    /^ID +WHO +TENANT +KIND +AGE +EXPIRES\n[0-9a-f]{16} +oidc:carl +default +command-line +\d+s +in 1[12]h\S*\n$/,
  );
  const [id = ""] = /^[0-9a-f]{16}/m.exec(listed.stdout) ?? [];
  const env = await home.millpond(["env", "-m", "1Gi"]);
  const program = /MILLPOND_TOKEN='?(mp-program-[^'\s]+)/.exec(env.stdout)?.[1] ?? "";
  const who = async (token: string) => (await home.millpond(["whoami", "--token", token])).code;
  expect([await who(carl), await who(program)]).toEqual([0, 0]);
  const admin = ["--token", controller.userToken];
  expect((await home.millpond(["get", "logins", id, "-o", "json", ...admin])).stdout).toContain("oidc:carl");
  const ended = await home.millpond(["logout", "--id", id, "--reason", "laptop lost", ...admin]);
  expect(ended).toMatchObject({ code: 0, stdout: `login/${id} of oidc:carl ended\n` });
  expect([await who(carl), await who(program)]).toEqual([120, 120]);
  const audit = await home.millpond(["get", "audit", "-o", "json", ...admin]);
  expect(JSON.parse(audit.stdout).items.at(-1)).toMatchObject({
    what: "AccessService/RevokeLogin",
    subject: `login/${id}`,
    why: "laptop lost",
  });
  expect((await home.millpond(["logout", "--id", id, ...admin])).code).toBe(121);
  expect((await home.millpond(["logout", "lab", "--id", id])).code).toBe(118);
  // The login has ended; only its context is left.
  expect(await home.millpond(["logout"])).toMatchObject({ code: 0, stderr: "" });

  const second = start();
  await browse(await linkOf(second));
  await second.finished;
  const token = storedToken();
  expect(await who(token)).toBe(0);
  expect(await home.millpond(["logout"])).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("logged out of lab"),
    stderr: "",
  });
  const after = await home.millpond(["whoami", "--controller", controller.url, "--token", token]);
  expect(after.code).toBe(120);
});

test("a refusal is the command's error, and nothing is stored", async () => {
  await home.millpond(["logout", "lab"]);
  provider.claims = { sub: "eve", groups: ["<i>others</i>"] };
  const login = start();
  expect((await browse(await linkOf(login))).text).toMatch(/^The login is refused/);
  const refused = await login.finished;
  expect(refused).toMatchObject({ code: 120, stdout: "" });
  expect(refused.stderr).toMatch(
    /the login is refused: no rule of this pool is for the groups "<i>others<\/i>"[^]*\[MILLPOND_E_UNAUTHENTICATED\]\n$/,
  );
  provider.error = "access_denied";
  const denied = start();
  await browse(await linkOf(denied));
  provider.error = "";
  expect((await denied.finished).stderr).toContain("the OpenID provider answers access_denied");
  expect((await home.millpond(["context", "list", "-o", "name"])).stdout).toBe("");
});

test("other callers of the port, and other verifiers, get nothing; a code is good once", async () => {
  provider.claims = { sub: "ann", groups: ["vision"] };
  const login = start();
  const link = await linkOf(login);
  const { url } = await browse(link, isLanding);
  for (const wrong of ["/", "/?code=x", `/?code=x&state=${"a".repeat(43)}`, "/?error=x&state=y"]) {
    expect((await fetch(new URL(wrong, url))).status, wrong).toBe(400);
  }
  const redeem = async (verifier: string) =>
    await fetch(`${controller.url}/console/oidc/token`, {
      method: "POST",
      body: JSON.stringify({ code: url.searchParams.get("code"), verifier }),
    });
  // A thief has seen the address but does not have the verifier.
  const stolen = await redeem("a".repeat(43));
  expect(stolen.status).toBe(401);
  expect(await stolen.text()).toContain("has been used, has expired, or is for another command");
  const bad = { method: "POST", body: JSON.stringify({ code: "x" }) };
  expect((await fetch(`${controller.url}/console/oidc/token`, bad)).status).toBe(400);
  expect((await fetch(`${controller.url}/console/oidc/token`)).status).toBe(405);
  await browse(url.href);
  expect((await login.finished).code).toBe(0);
  // The command that began the login gets its token, once.
  const own = new URL(link);
  own.searchParams.set("challenge", createHash("sha256").update("v".repeat(43)).digest("base64url"));
  const { url: ended } = await browse(own.href, isLanding);
  const request = { code: ended.searchParams.get("code"), verifier: "v".repeat(43) };
  const post = { method: "POST", body: JSON.stringify(request) };
  const answers = [1, 2].map(async () => await fetch(`${controller.url}/console/oidc/token`, post));
  expect(new Set((await Promise.all(answers)).map(({ status }) => status))).toEqual(new Set([200, 401]));
  // An address whose port or challenge cannot be a command's is refused before the provider is contacted.
  for (const change of [
    ["port", "80"],
    ["port", "evil.example:80"],
    ["challenge", "x"],
    ["state", ""],
  ] as const) {
    const [name, value] = change;
    const changed = new URL(link);
    changed.searchParams.set(name, value);
    const { url: end } = await browse(changed.href);
    expect(end.pathname, change.join()).toBe("/console/login");
  }
  // Nor can a link on another site begin a login.
  const foreign = await fetch(link, { redirect: "manual", headers: { "sec-fetch-site": "cross-site" } });
  expect(foreign.headers.get("location")).toBe("/console/login");
});

test("a browser of another machine ends at an address, which is entered at the terminal", async () => {
  provider.claims = { sub: "ann", groups: ["vision"] };
  const command = `${process.execPath} ${entry} login ${controller.url} --oidc --no-browser --name far`;
  const login = new Running(
    spawn("script", ["-qec", command, "/dev/null"], {
      cwd: home.directory,
      env: home.environment,
      stdio: ["pipe", "pipe", "pipe"],
    }),
  );
  await login.says("stdout", /\/console\/oidc\/login\?\S+\s[^]*enter it here/);
  const link = /http\S+\/console\/oidc\/login\?\S+/.exec(login.stdout)?.[0] ?? "";
  const { url } = await browse(link, isLanding);
  login.child.stdin?.write("what?\n");
  await login.says("stdout", /That is not the address at which this login ends/);
  login.child.stdin?.write(`${url.href}\n`);
  expect(await login.finished).toMatchObject({
    code: 0,
    stdout: expect.stringContaining("as oidc:ann (user of default) until"),
  });
});

test("a pool without a provider, and one that does not answer, are said to be so", async () => {
  const none = await home.millpond(["login", plain.url, "--oidc"]);
  expect(none).toMatchObject({ code: 118, stdout: "" });
  expect(none.stderr).toMatch(/has no logins by an OpenID provider[^]*\[MILLPOND_E_INVALID\]/);
  const silent = await home.millpond(["login", "http://127.0.0.1:1", "--oidc"]);
  expect(silent.stderr).toMatch(/no controller at http:\/\/127\.0\.0\.1:1[^]*\[MILLPOND_E_UNREACHABLE\]/);
  const both = await home.millpond(["login", plain.url, "--oidc", "--token-file", "-"]);
  expect(both.stderr).toMatch(/--oidc and --token-file are both given/);
});
