// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fakeClient, PoolFixture, type Running } from "../../../test/fixture.ts";
import { boundClaim, device, event, node, session } from "../../../test/samples.ts";
import { claimKind, deviceKind, eventKind, nodeKind, sessionKind } from "../../output/kinds.ts";

let pool: PoolFixture;
let client: Running;
beforeAll(async () => {
  pool = await PoolFixture.start();
  client = pool.home.start(["run", "-m", "1Gi", "--compute", "30", "--name", "job", "--", ...fakeClient]);
  await client.says("stdout", /attached/);
  await pool.until(async (connection) => {
    const { sessions } = await connection.pool.listSessions({});
    // With its first command it has memory in use.
    return sessions.some(({ transport, commands }) => transport === "shm" && commands > 0n);
  });
});
afterAll(async () => {
  client.child.stdin?.end();
  await client.finished;
  await pool[Symbol.asyncDispose]();
});

interface List {
  readonly apiVersion: string;
  readonly kind: string;
  readonly items: readonly Readonly<Record<string, unknown>>[];
}

test.for([
  ["nodes", nodeKind.toJson(node)],
  ["devices", deviceKind.toJson(device)],
  ["claims", claimKind.toJson(boundClaim)],
  ["sessions", sessionKind.toJson(session)],
  ["events", eventKind.toJson(event)],
] as const)("get %s -o json prints a list whose items have the agreed members", async ([kind, sample]) => {
  const { stdout, stderr, code } = await pool.home.millpond(["get", kind, "-o", "json"]);
  expect({ stderr, code }).toEqual({ stderr: "", code: 0 });
  const list = JSON.parse(stdout) as List;
  expect(list).toMatchObject({
    apiVersion: "millpond.v1",
    kind: `${kind.charAt(0).toUpperCase()}${kind.slice(1, -1)}List`,
  });
  expect(list.items.length).toBeGreaterThan(0);
  for (const item of list.items) expect(Object.keys(item)).toEqual(Object.keys(sample));
});

test("tables, names and wide tables show the same things", async () => {
  expect((await pool.home.millpond(["get", "claims"])).stdout).toMatch(
    /^NAME +STATE .*\njob +Bound +1 +1 GiB +30% +default +node-a +1 .*\n$/,
  );
  expect((await pool.home.millpond(["get", "claims", "-o", "name"])).stdout).toBe("claim/job\n");
  expect((await pool.home.millpond(["get", "sessions", "--no-headers"])).stdout).toMatch(
    /^[0-9a-f]{8} +job +node-a\/0 +Connected +\d+ +fake-client +1 MiB \/ 1 GiB +[\dms]+\n$/,
  );
  const wide = (await pool.home.millpond(["get", "devices", "-o", "wide"])).stdout;
  expect(wide).toMatch(
    /^NAME +MODEL .* UUID +KIND +PCI .*\nnode-a\/0 +Fake GPU +1 GiB \/ 4 GiB +30% .* GPU-/,
  );
});

test("get -w goes on and prints what changes", async () => {
  const watching = pool.home.start(["get", "claims", "-w", "-o", "json"]);
  await watching.says("stdout", /"name":"job"/);
  const { claim } = await pool.connection.claims.createClaim({
    claim: { name: "second", memoryBytes: 1n << 30n, leaseSeconds: 600 },
  });
  await watching.says("stdout", /"name":"second","state":"bound"/);
  await pool.connection.claims.releaseClaim({ name: claim?.name ?? "" });
  watching.child.kill("SIGTERM");
  const { stdout } = await watching.finished;
  const kinds = stdout
    .trimEnd()
    .split("\n")
    .map((line) => (JSON.parse(line) as { readonly kind: string }).kind);
  expect(new Set(kinds)).toEqual(new Set(["Claim"]));
});

test("get -w ends in silence when the reader of its output has ended", async () => {
  const watching = pool.home.start(["get", "claims", "-w", "-o", "json"]);
  await watching.says("stdout", /"name":"job"/);
  watching.child.stdout?.destroy();
  await pool.connection.claims.createClaim({
    claim: { name: "third", memoryBytes: 1n << 30n, leaseSeconds: 600 },
  });
  expect(await watching.finished).toMatchObject({ code: 141, stderr: "" });
  await pool.connection.claims.releaseClaim({ name: "third" });
});

test("describe finds things by name, by other names, and by unique beginnings", async () => {
  const byName = await pool.home.millpond(["describe", "claim", "jo"]);
  expect(byName.stdout).toMatch(
    /^Name: +job\nState: +bound\n(.*\n)*Sessions:\n +NAME .*\n +[0-9a-f]{8} +job .*\n/,
  );
  expect(byName.stdout).toMatch(/Events:\n +AGE +KIND .*\n +[\dms]+ +ClaimCreated/);
  const device0 = await pool.home.millpond(["describe", "device", "node-a/0"]);
  const uuid = /UUID: +(\S+)/.exec(device0.stdout)?.[1] ?? "";
  expect(device0.stdout).toMatch(/Claims:\n {2}job: 1 GiB, 30% compute\n/);
  expect((await pool.home.millpond(["describe", "device", uuid])).stdout).toMatch(/^Name: +node-a\/0\n/);
  expect((await pool.home.millpond(["describe", "node", "node-a"])).stdout).toMatch(/Status: +Ready\n/);
  const session0 = JSON.parse((await pool.home.millpond(["get", "sessions", "-o", "json"])).stdout) as List;
  const id = String(session0.items[0]?.["id"]);
  const described = await pool.home.millpond(["describe", "session", id.slice(0, 8), "-o", "json"]);
  expect(JSON.parse(described.stdout)).toMatchObject({ kind: "Session", id, claim: "job", transport: "shm" });
  const absent = await pool.home.millpond(["describe", "node", "nowhere"]);
  expect(absent).toMatchObject({ code: 121, stdout: "" });
  expect(absent.stderr).toMatch(/there is no node "nowhere"\n {2}List them with `millpond get nodes`/);
});

test("cordon keeps new claims off a node, uncordon lets them come", async () => {
  expect(await pool.home.millpond(["cordon", "node-a"])).toMatchObject({
    code: 0,
    stdout: "node/node-a cordoned\n",
  });
  expect((await pool.home.millpond(["get", "nodes"])).stdout).toMatch(/node-a +Ready,Cordoned/);
  const refused = await pool.home.millpond(["run", "--no-wait", "-m", "1Gi", "--", "true"]);
  expect(refused.code).toBe(123);
  expect(await pool.home.millpond(["uncordon", "node-a"])).toMatchObject({ code: 0 });
  expect(await pool.home.millpond(["run", "--no-wait", "-m", "1Gi", "--", "true"])).toMatchObject({
    code: 0,
  });
});

test("env prints what a shell takes over, and adds to its library path", async () => {
  const { stdout } = await pool.home.millpond(["env", "-n", "2", "-m", "1Gi", "--compute", "10"]);
  const show =
    'echo "$MILLPOND_GPUS $MILLPOND_MEMORY $MILLPOND_COMPUTE $MILLPOND_CONTROLLER $LD_LIBRARY_PATH"';
  const shell = (environment: NodeJS.ProcessEnv): string =>
    spawnSync("/bin/sh", ["-c", `${stdout}\n${show}`], { encoding: "utf8", env: environment }).stdout;
  const library = join(pool.home.native, "client");
  expect(shell({})).toBe(`2 1Gi 10% ${pool.connection.controller} ${library}\n`);
  expect(shell({ LD_LIBRARY_PATH: "/opt" })).toBe(
    `2 1Gi 10% ${pool.connection.controller} ${library}:/opt\n`,
  );
});

test("version shows both sides", async () => {
  const text = await pool.home.millpond(["version"]);
  expect(text.stdout).toMatch(/^millpond +\d+\.\d+\.\d+ \(Node .*\)\ncontroller +\d+\.\d+\.\d+ at http/);
  const json = await pool.home.millpond(["version", "-o", "json"], {
    environment: { MILLPOND_CONTROLLER: "http://127.0.0.1:1" },
  });
  expect(JSON.parse(json.stdout)).toMatchObject({
    kind: "Version",
    client: { node: process.versions.node },
    controller: null,
  });
});

test("a cordoned device and a cordoned node show it everywhere, with the reason", async () => {
  const say = async (...args: string[]): Promise<string> => (await pool.home.millpond(args)).stdout;
  await say("cordon", "node-a/0", "--reason", "fan replaced");
  expect(await say("get", "devices")).toMatch(/node-a\/0 .* Healthy,Cordoned/);
  expect(await say("get", "devices", "-o", "wide")).toMatch(/cordoned: fan replaced/);
  expect(await say("smi")).toMatch(/node-a\/0 .*\| Cordoned/);
  expect(await say("describe", "device", "node-a/0")).toMatch(
    /Status: +Healthy,Cordoned \(cordoned: fan replaced\)/,
  );
  expect(JSON.parse(await say("get", "devices", "-o", "json"))).toMatchObject({
    items: [{ cordoned: true, cordonReason: "fan replaced" }],
  });
  await say("uncordon", "node-a/0");
  await say("cordon", "node-a", "--reason", "moves");
  expect(await say("get", "nodes", "-o", "wide")).toMatch(/Ready,Cordoned .*cordoned: moves/);
  expect(await say("describe", "node", "node-a")).toMatch(/Status: +Ready,Cordoned \(cordoned: moves\)/);
  await say("uncordon", "node-a");
  expect(await say("get", "devices", "-o", "wide")).not.toMatch(/[Cc]ordoned/);
});
