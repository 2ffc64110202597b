// SPDX-License-Identifier: Apache-2.0

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

const file = `
apiVersion: millpond.v1
kind: Tenant
name: team-a
limit: {gpus: 4, memory: 64Gi}
---
kind: Queue
name: research
weight: 3
guaranteed: {gpus: 0.5}
---
kind: Claim
name: train
gpus: 1
memory: 1Gi
compute: 25
tenant: team-a
queue: research
priority: 7
preemptible: true
labels: {app: train, team: a}
timeLimit: 2h
lease: 1h
`;

test("standard input may come late, and in pieces", async () => {
  await using pool = await PoolFixture.start();
  const running = pool.home.start(["apply", "-f", "-"]);
  running.child.stdin?.write("kind: Queue\n");
  running.child.stdin?.write("name: late\n");
  await new Promise((resolve) => setImmediate(resolve));
  running.child.stdin?.end("weight: 2\n");
  expect(await running.finished).toMatchObject({ code: 0, stdout: "queue/late created\n", stderr: "" });
});

test("a file makes what it describes, and applying it again changes nothing", async () => {
  await using pool = await PoolFixture.start();
  const path = join(pool.home.directory, "all.yaml");
  writeFileSync(path, file);
  const first = await pool.home.millpond(["apply", "-f", path]);
  expect(first).toMatchObject({
    code: 0,
    stderr: "",
    stdout: "tenant/team-a created\nqueue/research created\nclaim/train bound\n",
  });
  const again = await pool.home.millpond(["apply", "-f", "-"], { input: file });
  expect(again.stdout).toBe("tenant/team-a unchanged\nqueue/research unchanged\nclaim/train unchanged\n");
  // Empty lists and maps request nothing.
  const empty = await pool.home.millpond(["apply", "-f", "-"], {
    input: "kind: Claim\nname: plain\nmemory: 64Mi\nmodel: []\naffinity: {}\n",
  });
  expect(empty.stdout).toBe("claim/plain bound\n");
  // A value that the controller fills in makes no difference, however the controller derives it.
  const defaults = `kind: Claim
name: plain
memory: 64Mi
---
kind: Claim
name: local
memory: 10%
locality: local-only
---
kind: Claim
name: asleep
lazy: true
`;
  expect((await pool.home.millpond(["apply", "-f", "-"], { input: defaults })).stdout).toBe(
    "claim/plain unchanged\nclaim/local bound\nclaim/asleep dormant\n",
  );
  expect((await pool.home.millpond(["apply", "-f", "-"], { input: defaults })).stdout).toBe(
    "claim/plain unchanged\nclaim/local unchanged\nclaim/asleep unchanged\n",
  );
  // A given name that is a part of another claim's name does not match that claim.
  const part = await pool.home.millpond(["release", "plai"]);
  expect(part).toMatchObject({ code: 121, stderr: expect.stringContaining('there is no claim "plai"') });
  expect(await pool.home.millpond(["release", "plain"])).toMatchObject({ code: 0 });
  const other = await pool.home.millpond(["apply", "-f", "-"], {
    input: file.replace("priority: 7", "priority: 8").replace("weight: 3", "weight: 4"),
  });
  expect(other).toMatchObject({
    code: 125,
    stdout: "tenant/team-a unchanged\nqueue/research changed\n",
    stderr: expect.stringContaining("claim/train: it exists with priority 7, and the file has 8"),
  });
  // Applying an unchanged file produces no event.
  const { events } = await pool.connection.pool.listEvents({ subject: "queue/research" });
  expect(events.map(({ kind }) => kind)).toEqual(["QueueCreated", "QueueChanged"]);

  const { stdout } = await pool.home.millpond(["describe", "claim", "train", "-o", "json"]);
  expect(JSON.parse(stdout)).toMatchObject({
    tenant: "team-a",
    queue: "research",
    priority: 7,
    preemptible: true,
    labels: { app: "train", team: "a" },
    timeLimitSeconds: 7200,
    leaseSeconds: 3600,
    computePercent: 25,
  });
  const queues = await pool.home.millpond(["get", "queues"]);
  expect(queues.stdout).toMatch(/research +- +4 +gpus=0\.5 +none +0\.25 +1 GiB +1 +0/);
  const text = await pool.home.millpond(["describe", "claim", "train"]);
  expect(text.stdout).toMatch(/\n {2}preemptible: +yes\n/);
  expect(text.stdout).toMatch(/\n {2}time-limit: +2h\n/);
  expect(text.stdout).toMatch(/\nLease: +1h, of which (1h|59m(\d+s)?) is left\n/);
});

test("what a file would change is said and not made, and what it describes is taken back", async () => {
  await using pool = await PoolFixture.start();
  const apply = async (input: string, ...options: string[]) =>
    await pool.home.millpond(["apply", "-f", "-", ...options], { input });
  expect(await apply(file, "--dry-run")).toMatchObject({
    code: 0,
    stdout: "tenant/team-a would be created\nqueue/research would be created\nclaim/train would be created\n",
  });
  expect((await pool.home.millpond(["get", "queues", "-o", "name"])).stdout).toBe("queue/default\n");
  await apply(file);
  expect((await apply(file, "--dry-run")).stdout).toBe(
    "tenant/team-a unchanged\nqueue/research unchanged\nclaim/train unchanged\n",
  );
  const other = file
    .replace("weight: 3", "weight: 4")
    .replace("memory: 64Gi}", "memory: 32Gi}\nuserLimit: {gpus: 1}");
  expect((await apply(other, "--dry-run")).stdout).toBe(
    "tenant/team-a would be changed: limit from gpus=4,memory=64Gi to gpus=4,memory=32Gi, userLimits from each: none to each: gpus=1\n" +
      "queue/research would be changed: weight from 3 to 4\nclaim/train unchanged\n",
  );
  expect((await apply(file, "--delete", "--dry-run")).stdout).toBe(
    "claim/train would be released\nqueue/research would be deleted\ntenant/team-a would be deleted\n",
  );
  expect((await apply(file, "--dry-run")).stdout).toContain("claim/train unchanged");
  const taken = "claim/train released\nqueue/research deleted\ntenant/team-a deleted\n";
  expect((await apply(file, "--delete")).stdout).toBe(taken);
  expect((await apply(file, "--delete")).stdout).toBe(
    taken
      .replace("queue/research deleted", "queue/research is not there")
      .replace("tenant/team-a deleted", "tenant/team-a is not there"),
  );
});

test("what is refused ends apply, says which document it was, and what comes before it stays", async () => {
  await using pool = await PoolFixture.start();
  const input =
    "kind: Queue\nname: a\n---\nkind: Queue\nname: b\nparent: nowhere\n---\nkind: Queue\nname: c\n";
  expect(await pool.home.millpond(["apply", "-f", "-"], { input })).toMatchObject({
    code: 121,
    stdout: "queue/a created\n",
    stderr: expect.stringMatching(/^error: queue\/b: .*"nowhere"/) as string,
  });
  expect((await pool.home.millpond(["get", "queues", "-o", "name"])).stdout).toBe("queue/a\nqueue/default\n");
});

test("queues and tenants are made, changed and deleted, and not while they are in use", async () => {
  await using pool = await PoolFixture.start();
  const run = (line: string) => pool.home.millpond(line.split(" "));
  expect(await run("queue create a --weight 2 --limit gpus=1.5")).toMatchObject({
    code: 0,
    stdout: "queue/a created\n",
  });
  expect(await run("queue create a")).toMatchObject({
    code: 125,
    stderr: expect.stringContaining("ALREADY_EXISTS"),
  });
  expect(await run("queue create b --parent a")).toMatchObject({ code: 0 });
  expect(await run("queue change a --parent b")).toMatchObject({
    code: 118,
    stderr: expect.stringContaining("its own ancestor"),
  });
  expect(await run("queue change a --borrowing none")).toMatchObject({ code: 0 });
  expect((await run("describe queue a")).stdout).toMatch(/Limit: +gpus=1.5/);
  expect(await run("queue change a --limit compute=250,memory=2Gi")).toMatchObject({ code: 0 });
  expect((await run("describe queue a")).stdout).toMatch(/Limit: +compute=250%,memory=2Gi/);
  expect(await run("queue delete a")).toMatchObject({ code: 125, stderr: expect.stringContaining("IN_USE") });
  expect(await run("queue delete b")).toMatchObject({ code: 0 });
  expect(await run("queue delete a")).toMatchObject({ code: 0 });
  expect(await run("queue change a --weight 3")).toMatchObject({
    code: 121,
    stderr: expect.stringContaining("NOT_FOUND"),
  });

  expect(await run("tenant create t --limit gpus=1")).toMatchObject({ code: 0 });
  const { stderr } = await run("run --tenant nobody -- true");
  expect(stderr).toContain('there is no tenant "nobody"');
  await pool.connection.claims.createClaim({
    claim: { name: "c", tenant: "t", memoryPercent: 10, leaseSeconds: 600 },
  });
  expect(await run("tenant delete t")).toMatchObject({
    code: 125,
    stderr: expect.stringContaining("such as c"),
  });
  expect((await run("get tenants -o json")).stdout).toContain('"boundClaims": 1');
});

describe("a file that is not what it should be", () => {
  let pool: PoolFixture;
  beforeAll(async () => {
    pool = await PoolFixture.start();
  });
  afterAll(async () => {
    await pool[Symbol.asyncDispose]();
  });

  test.each([
    ["kind: Claim\nname: a\ngpu: 1", /a claim has no member "gpu"/],
    ["kind: Claim\nname: a\ngpus: 65", /gpus: "65" is not a whole number from 1 to 64/],
    ["kind: Claim\nname: A", /name is "A"/],
    ["kind: Pod\nname: a", /kind is "Pod"/],
    ["kind: Claim\nname: a\ngpus: [1]", /gpus: the value is neither/],
    ["kind: Claim\nname: a\nname: b", /unique/i],
    ["kind: Queue\nname: a\nlimit: {cards: 1}", /limit: "cards" is not one of gpus, compute, memory/],
    ["a: &x [1]\nb: *x", /alias/i],
    ["kind: Claim\nname: a\nlabels: {app: 'web,team=b'}", /labels: "app=web,team=b" is not a label/],
    ["kind: Claim\nname: a\nmodel: ['H100,H200']", /model: "H100,H200" has a comma in it/],
    ["kind: Claim\nname: a\ngpus: {}", /gpus: the value is neither/],
    [
      "kind: Claim\nname: 5",
      /name is "5", which YAML reads as something other than a string\n  Write it in quotes/,
    ],
    ["kind: Claim\ngpus: 1", /standard input: name is missing\n/],
    ["name: a", /standard input: kind is missing: it is one of Claim/],
    ["kind: Claim\nname: a\nlabels: [a]", /labels: the value is neither a string nor a map such as/],
    ["kind: Claim\nname: a\ngrace: 0", /grace: "0" is less than 1s/],
    ["kind: Claim\nname: a\nminCapability: 9.0", /claim\/a: no device has compute capability 9\.0\n/, 122],
    [
      "kind: Claim\nname: a\n---\nkind: Claim\nname: a",
      /document 2 at line 4: it describes the Claim a twice/,
    ],
    ["kind: [", /standard input: .* at line 1, column \d+\n/],
    ["", /describes nothing/],
    [
      "kind: Claim\nname: a\n---\nkind: Claim\nname: b\nserviceClass: gold",
      /document 2 at line 4: serviceClass: "gold"/,
    ],
  ])("%j is refused, and nothing of it is done", async (text, message, code = 118) => {
    const result = await pool.home.millpond(["apply", "-f", "-"], { input: text });
    expect(result).toMatchObject({ code, stdout: "", stderr: expect.stringMatching(message) });
    expect((await pool.connection.claims.listClaims({ includeEnded: true })).claims).toEqual([]);
  });
});
