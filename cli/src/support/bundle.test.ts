// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { PoolFixture } from "../../test/fixture.ts";
import { commandSpecs } from "../command-table/command-table.ts";
import { writeContexts } from "../connection/context.ts";
import { collectBundle } from "./bundle.ts";
import { Redaction, shownLog, shownOptions, shownSettings } from "./redaction.ts";
import { packArchive } from "./tar.ts";

let pool: PoolFixture;
beforeAll(async () => {
  pool = await PoolFixture.start({ tls: true });
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

/** A secret of a random kind, as Millpond, a database or a person would create it. */
function randomSecret(): string {
  const bytes = randomBytes(randomInt(12, 48));
  switch (randomInt(4)) {
    case 0:
      return bytes.toString("hex");
    case 1:
      return bytes.toString("base64url");
    case 2:
      return `${bytes.toString("base64")}+/=`;
    default:
      return `mp-admin-${randomBytes(32).toString("base64url")}`;
  }
}

/** Log lines that may contain a secret unknown to the host: outside of the listed members, or in a recognizable form. */
const unknownPlaces: readonly ((secret: string) => string)[] = [
  (secret) => JSON.stringify({ level: 30, msg: "a call", headers: { authorization: secret } }),
  (secret) => JSON.stringify({ level: 50, err: { message: "no", config: { env: [secret] } }, msg: "failed" }),
  (secret) => `{"level":30,"token":"${secret}","msg":"cut in the mid`,
  (secret) => JSON.stringify({ msg: `GET https://pool.example/login?code=${encodeURIComponent(secret)}` }),
  (secret) => `authorization: Bearer ${secret.replace(/[+/=]/g, "")}`,
  (secret) => `clientSecret="${secret}"`,
  (secret) => `connecting to postgres://millpond:${encodeURIComponent(secret)}@db:5432/millpond`,
  (secret) => `-----BEGIN PRIVATE KEY-----\n${secret}\n-----END PRIVATE KEY-----`,
];

/** Where a secret known to the host may occur: anywhere. */
const knownPlaces: readonly ((secret: string) => string)[] = [
  ...unknownPlaces,
  (secret) => JSON.stringify({ level: 30, msg: `the value ${secret} is refused`, time: "now" }),
  (secret) => JSON.stringify({ level: 50, err: { message: "no", stack: `at ${secret}:1:2` } }),
  (secret) => `worker: unexpected text "${secret}"`,
  (secret) => `base64 ${Buffer.from(secret).toString("base64")}`,
];

test("no secret of the host or of the pool is in a bundle, wherever it was written", async () => {
  const { home } = pool;
  const token = async (name: string, role: string) =>
    (await pool.connection.access.createToken({ name, role })).secret;
  const directory = (...path: string[]): string => join(home.directory, ...path);
  const inFile = (path: string, secret: string): string => {
    writeFileSync(path, `${secret}\n`, { mode: 0o600 });
    return secret;
  };
  const controllerState = directory("controller");
  const lines = (path: string): string[] =>
    readFileSync(path, "utf8")
      .split("\n")
      .filter((line) => line.length >= 20 && !line.startsWith("-----"));
  mkdirSync(directory("etc"));
  const store = randomSecret();
  const hook = `https://hooks.example/services/${randomBytes(24).toString("hex")}`;
  const known = [
    pool.connection.token,
    ...lines(join(controllerState, "agent.token")),
    ...lines(join(controllerState, "pool.key")),
    ...lines(directory("tls.key")),
    inFile(directory("etc", "agent.token"), await token("node", "agent")),
    inFile(directory("etc", "hook.secret"), randomSecret()),
    inFile(directory("etc", "oidc.secret"), randomSecret()),
    store,
    hook,
  ];
  const variables = {
    MILLPOND_TOKEN: await token("ann", "user"),
    MILLPOND_USER_TOKENS: `${randomSecret()},${randomSecret()}`,
    MILLPOND_AGENT_TOKENS: randomSecret(),
    MILLPOND_LINK_SECRET: randomBytes(32).toString("hex"),
    AWS_SECRET_ACCESS_KEY: randomSecret(),
  };
  known.push(...Object.values(variables).flatMap((value) => value.split(",")));
  const context = randomSecret();
  known.push(context);
  writeContexts(home.config, {
    currentContext: "test",
    contexts: {
      test: { controller: pool.connection.controller, token: pool.connection.token, ca: pool.connection.ca },
      other: { controller: "https://other.example:7170", token: context },
    },
  });
  writeFileSync(
    directory("etc", "webhooks.json"),
    JSON.stringify({ webhooks: [{ name: "pager", url: hook, secretFile: "hook.secret" }] }),
  );
  writeFileSync(
    directory("etc", "oidc.json"),
    JSON.stringify({ issuer: "https://id.example", clientId: "millpond", clientSecretFile: "oidc.secret" }),
  );
  writeFileSync(
    directory("etc", "controller.yaml"),
    [
      "listen: 0.0.0.0:7170",
      `state: ${controllerState}`,
      `store: postgres://millpond:${encodeURIComponent(store)}@db/millpond`,
      `tlsKey: ${directory("tls.key")}`,
      `webhooks: ${directory("etc", "webhooks.json")}`,
      `oidc: ${directory("etc", "oidc.json")}`,
    ].join("\n"),
  );
  writeFileSync(
    directory("etc", "agent.yaml"),
    `controller: https://controller:7170\ntokenFile: ${directory("etc", "agent.token")}\nrun: ${directory("run")}\n`,
  );
  // Logs with all of them, and with others.
  const unknown = Array.from({ length: 64 }, randomSecret);
  const state = directory("state", "millpond");
  mkdirSync(join(state, "logs"), { recursive: true });
  const pick = <T>(list: readonly T[]): T => list[randomInt(list.length)] as T;
  const logged = [
    ...known.flatMap((secret) => knownPlaces.map((place) => place(secret))),
    ...unknown.map((secret) => pick(unknownPlaces)(secret)),
    JSON.stringify({ level: 30, part: "controller", msg: "the claim train is bound" }),
  ].sort(() => randomInt(3) - 1);
  writeFileSync(join(state, "logs", "controller.log"), logged.join("\n"));
  writeFileSync(join(state, "up.log"), logged.toReversed().join("\n"));
  const [worker = ""] = spawnSync("ls", [directory("run", "workers")], { encoding: "utf8" }).stdout.split(
    "\n",
  );
  writeFileSync(
    directory("run", "workers", worker, "worker.log"),
    `the worker is warm\n${logged.join("\n")}`,
  );
  await pool.connection.claims.createClaim({
    claim: { name: "train", memoryBytes: 1n << 30n, leaseSeconds: 600 },
  });

  const files = await collectBundle({
    environment: { ...home.environment, ...variables },
    connection: pool.connection,
    findings: [
      { status: "failure", name: "controller", detail: `the token ${known[0]} is refused`, fix: "" },
    ],
    state,
    configurations: {
      controller: directory("etc", "controller.yaml"),
      agent: directory("etc", "agent.yaml"),
    },
  });
  const bundle = gunzipSync(packArchive(files, 1_790_000_000)).toString("latin1");
  for (const secret of [...known, ...unknown]) {
    const bytes = Buffer.from(secret);
    for (const spelling of [
      secret,
      encodeURIComponent(secret),
      bytes.toString("base64"),
      bytes.toString("hex"),
    ]) {
      expect(bundle.includes(spelling), `${spelling} of ${secret}`).toBe(false);
    }
  }
  // The files that a report needs are present.
  expect(files.map(({ path }) => path)).toEqual(
    expect.arrayContaining([
      "host.json",
      "doctor.json",
      "environment.json",
      "contexts.json",
      "config/controller.json",
      "config/agent.json",
      "pool/nodes.json",
      "pool/claims.json",
      "pool/events.json",
      "logs/up.log",
      "logs/up/controller.log",
    ]),
  );
  for (const text of ["the claim train is bound", "the worker is warm", '"name": "train"', "0.0.0.0:7170"])
    expect(bundle).toContain(text);
});

test("a bundle is a tar archive that is its owner's only, and is not written over another file", async () => {
  const { home } = pool;
  const path = join(home.directory, "case.tar.gz");
  const result = await home.millpond(["support-bundle", "--to", path]);
  expect(result).toMatchObject({ code: 0, stderr: "" });
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const list = spawnSync("tar", ["-tzvf", path], { encoding: "utf8" });
  expect(list).toMatchObject({ status: 0, stderr: "" });
  expect(list.stdout).toMatch(/^-rw------- 0\/0 +\d+ \d{4}-\d\d-\d\d \d\d:\d\d host\.json\n/);
  const nodes = spawnSync("tar", ["-xzOf", path, "pool/nodes.json"], { encoding: "utf8" }).stdout;
  expect(JSON.parse(nodes)).toMatchObject({ kind: "NodeList", items: [{ name: "node-a", state: "ready" }] });
  const again = await home.millpond(["support-bundle", "--to", path]);
  expect(again).toMatchObject({ code: 118, stdout: "", stderr: expect.stringContaining("EEXIST") });
});

test("without a controller, a bundle has what this host knows", async () => {
  const path = join(pool.home.directory, "alone.tar.gz");
  const environment = { MILLPOND_CONFIG: join(pool.home.directory, "none.json") };
  expect(await pool.home.millpond(["support-bundle", "--to", path], { environment })).toMatchObject({
    code: 0,
  });
  const doctor = spawnSync("tar", ["-xzOf", path, "doctor.json"], { encoding: "utf8" }).stdout;
  expect(doctor).toContain("no controller is configured");
});

test("of the options of services, each is listed or is not shown", () => {
  for (const [service, hidden] of [
    ["controller", ["store"]],
    ["agent", []],
  ] as const) {
    const options = Object.keys(commandSpecs[service].options).filter((key) => key !== "config");
    expect(options.filter((key) => !shownOptions[service].has(key))).toEqual(hidden);
  }
  expect(shownSettings("controller", { listen: "a", store: "b", later: "c" })).toEqual({
    listen: "a",
    store: "(given, not shown)",
    later: "(given, not shown)",
  });
});

test("texts keep what is no secret", () => {
  const redaction = new Redaction(["short", "a-long-secret-1"]);
  const text = "claim train of ann@host:17 on node-a/0: http://10.0.0.1:7170 is short of memory, mp-small";
  expect(redaction.clean(text)).toBe(text);
  expect(redaction.clean("xa-long-secret-1x")).toBe("x[removed]x");
  expect(shownLog('{"level":30,"msg":"bound","claim":"train","more":1}\nplain')).toBe(
    '{"level":30,"msg":"bound","claim":"train","more":"(not shown)"}\nplain',
  );
});
