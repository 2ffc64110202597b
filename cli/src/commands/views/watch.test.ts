// SPDX-License-Identifier: Apache-2.0

import { afterAll, beforeAll, expect, test } from "vitest";
import { PoolFixture } from "../../../test/fixture.ts";

let pool: PoolFixture;
beforeAll(async () => {
  pool = await PoolFixture.start();
});
afterAll(() => pool[Symbol.asyncDispose]());

async function makeClaim(name: string): Promise<void> {
  await pool.connection.claims.createClaim({ claim: { name, memoryBytes: 1n << 20n, leaseSeconds: 600 } });
}

test("a watch shows the end of a claim, and titles again when a row is wider", async () => {
  await makeClaim("one");
  const watching = pool.home.start(["get", "claims", "-w"]);
  await watching.says("stdout", /^NAME +STATE .*\none +Bound/);
  await pool.connection.claims.releaseClaim({ name: "one" });
  await watching.says("stdout", /\none +Released/);
  await makeClaim("with-a-longer-name");
  await watching.says("stdout", /\nNAME {17}STATE.*\nwith-a-longer-name +Bound/);
  watching.child.kill("SIGTERM");
  expect(await watching.finished).toMatchObject({ stderr: "" });
  await pool.connection.claims.releaseClaim({ name: "with-a-longer-name" });
});

test("what has no last state is said to be gone, in JSON by a member", async () => {
  await pool.connection.queues.putQueue({ queue: { name: "short", weight: 1 } });
  const table = pool.home.start(["get", "queues", "-w"]);
  const json = pool.home.start(["get", "queues", "short", "-w", "-o", "json"]);
  await table.says("stdout", /\nshort/);
  await json.says("stdout", /"name":"short"/);
  await pool.connection.queues.deleteQueue({ name: "short" });
  await table.says("stdout", /\nqueue\/short is gone\n/);
  await json.says("stdout", /"name":"short".*"gone":true}\n/);
  for (const each of [table, json]) {
    each.child.kill("SIGTERM");
    await each.finished;
  }
  expect(json.stdout).not.toContain('"name":"default"');
});

test("a watch goes on when the controller was restarted, without records twice", async () => {
  const watching = pool.home.start(["get", "events", "-w", "-o", "json"]);
  await makeClaim("before");
  await watching.says("stdout", /"subject":"claim\/before"/);
  await pool.stopController();
  await watching.says("stderr", /waiting for the controller at http:\S+, which does not answer\n/);
  await pool.startController();
  await makeClaim("behind");
  await watching.says("stdout", /"subject":"claim\/behind"/);
  watching.child.kill("SIGTERM");
  const { stdout } = await watching.finished;
  const ids = stdout
    .trimEnd()
    .split("\n")
    .map((line) => (JSON.parse(line) as { readonly id: number }).id);
  expect(new Set(ids).size).toBe(ids.length);
  const last = ids.at(-1) ?? 0;
  const later = await pool.home.millpond(["get", "events", "--after", String(last - 1), "-o", "json"]);
  const { items } = JSON.parse(later.stdout) as { readonly items: readonly { readonly id: number }[] };
  expect(items[0]?.id).toBe(last);
  for (const name of ["before", "behind"]) await pool.connection.claims.releaseClaim({ name });
});

test("names, conditions, an order, dates, YAML and paths shape what is shown", async () => {
  await makeClaim("alpha");
  await makeClaim("beta");
  const say = async (...args: string[]): Promise<string> =>
    (await pool.home.millpond(["get", ...args])).stdout;
  expect(await say("claims", "-o", "name", "--sort-by", "-name")).toBe("claim/beta\nclaim/alpha\n");
  expect(await say("claims", "alp", "-o", "name")).toBe("claim/alpha\n");
  expect(await say("claims", "-o", "name", "--where", "name=beta,state=bound")).toBe("claim/beta\n");
  expect(await say("claims", "-o", "jsonpath={.items[*].name}", "--sort-by", "name")).toBe("alpha beta\n");
  expect(await say("claims", "alpha", "-o", "jsonpath={.allocation.node}")).toBe("node-a\n");
  expect(await say("claims", "alpha", "-o", "yaml")).toMatch(
    /^apiVersion: millpond\.v1\nkind: Claim\nname: alpha\n/,
  );
  expect(await say("claims", "alpha", "--absolute")).toMatch(
    /^NAME .* SINCE .*\nalpha .* \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ /,
  );
  expect(await say("nodes", "-l", "zone=nowhere", "-o", "name")).toBe("");
  expect(await say("nodes", "-l", "!zone", "-o", "name")).toBe("node/node-a\n");
  // Also in a list that is empty.
  const none = await pool.home.millpond(["get", "logins", "--where", "foo=1"]);
  expect(none).toMatchObject({
    code: 118,
    stderr: expect.stringMatching(/there is no member "foo"/) as string,
  });
  const refused = await pool.home.millpond(["get", "claims", "--where", "stat=bound"]);
  expect(refused).toMatchObject({ code: 118, stdout: "" });
  expect(refused.stderr).toMatch(/--where: there is no member "stat"; there are name, state,/);
  expect((await pool.home.millpond(["get", "claims", "--after", "3"])).stderr).toMatch(
    /--after is for events and the audit/,
  );
});
