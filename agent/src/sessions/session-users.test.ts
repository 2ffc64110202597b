// SPDX-License-Identifier: Apache-2.0
// Only root can give workers users of their own.

import { chmodSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { attach, firstDevice, NodeFixture, openSession, until } from "../../test/fixture.ts";

interface Seen {
  readonly user: number;
  readonly claim: string | undefined;
}

/** The users of a node's workers, according to their records. */
function workersOf(node: NodeFixture): Seen[] {
  const records = join(node.run, "records");
  return readdirSync(records)
    .filter((name) => name.endsWith(".json"))
    .map((name) => {
      const { user, session } = JSON.parse(readFileSync(join(records, name), "utf8")) as {
        user: number;
        session: { claim: string } | null;
      };
      return { user, claim: session?.claim };
    });
}

function usersOf(node: NodeFixture, claim: string | undefined): number[] {
  return workersOf(node)
    .filter((each) => each.claim === claim)
    .map(({ user }) => user);
}

async function makeNode(): Promise<NodeFixture> {
  const node = await NodeFixture.create();
  // Like /run/millpond: every user may traverse it.
  chmodSync(node.directory, 0o755);
  for (const claim of ["claim-1", "claim-2"]) node.controller.allocate(claim, "node-a", [firstDevice]);
  return node;
}

const workerUsers = "70000-70005";

describe.runIf(process.getuid?.() === 0)("the user of a worker", () => {
  test("is the same in all sessions of a claim, and another in every other claim", async () => {
    await using node = await makeNode();
    const agent = await node.startKnownAgent({ workerUsers });
    const open = (claim: string) => openSession(agent, node.controller.ticket(claim));
    await Promise.all(["claim-1", "claim-2", "claim-1"].map(open));
    const { workerUser } = await open("claim-1");
    const [first, ...others] = usersOf(node, "claim-1");
    expect(workerUser).toBe(first);
    expect(others).toEqual([first, first]);
    const [second] = usersOf(node, "claim-2");
    expect(second).not.toBe(first);
    // Nor is one of them the user of a worker that waits for another claim.
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    for (const user of usersOf(node, undefined)) expect([first, second]).not.toContain(user);
  });

  test("stays the claim's under the agent that follows", async () => {
    await using node = await makeNode();
    const agent = await node.startKnownAgent({ workerUsers });
    const ticket = node.controller.ticket("claim-1");
    using _client = await attach({ path: (await openSession(agent, ticket)).unixPath }, ticket);
    await agent.stop();
    const next = await node.startKnownAgent({ workerUsers });
    await openSession(next, node.controller.ticket("claim-2"));
    await openSession(next, node.controller.ticket("claim-1"));
    const [first, again] = usersOf(node, "claim-1");
    expect(again).toBe(first);
    expect(usersOf(node, "claim-2")).not.toContain(first);
  });

  test("is free again when its last worker has ended, and without one no session begins", async () => {
    await using node = await makeNode();
    // A range of two ids for workers.
    const agent = await node.startKnownAgent({
      workerUsers: "70000-70002",
      warm: 0,
      connectWithinSeconds: 60,
    });
    node.controller.allocate("claim-3", "node-a", [firstDevice]);
    const ticket = node.controller.ticket("claim-1");
    const client = await attach({ path: (await openSession(agent, ticket)).unixPath }, ticket);
    await openSession(agent, node.controller.ticket("claim-2"));
    await expect(openSession(agent, node.controller.ticket("claim-3"))).rejects.toThrow(
      /all 2 user ids for workers, of 70000-70002, are in use.*--worker-users.*MILLPOND_E_NO_WORKER/,
    );
    const [freed] = usersOf(node, "claim-1");
    // A claim that already has one needs no other.
    await openSession(agent, node.controller.ticket("claim-2"));
    client[Symbol.dispose]();
    await until(() => usersOf(node, "claim-1").length === 0, "the first session has ended");
    await openSession(agent, node.controller.ticket("claim-3"));
    expect(usersOf(node, "claim-3")).toEqual([freed]);
  });

  test("that an earlier release gave to all is that of no worker that waits", async () => {
    await using node = await makeNode();
    const first = await node.startKnownAgent({ workerUser: "70000", warm: 1 });
    await node.controller.report(({ warmWorkers }) => warmWorkers === 2);
    const records = join(node.run, "records");
    await first.stop();
    for (const name of readdirSync(records)) {
      const { user: _none, ...record } = JSON.parse(readFileSync(join(records, name), "utf8")) as object & {
        user: number;
      };
      writeFileSync(join(records, name), JSON.stringify(record));
    }
    await node.startKnownAgent({ workerUsers, warm: 1 });
    await until(() => {
      const users = workersOf(node).map(({ user }) => user);
      return users.length === 2 && users.every((user) => user > 70_000);
    }, "the workers of the earlier release are replaced");
    expect(new Set(usersOf(node, undefined)).size).toBe(2);
  });
});
