// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { SessionState } from "@millpond/api";
import { expect, test } from "vitest";
import { attach, firstDevice, NodeFixture, openSession } from "../test/fixture.ts";

/** Runs the agent as its own process, as in production. Resolves when it serves. */
async function spawnAgent(
  node: NodeFixture,
): Promise<{ readonly child: ChildProcess; readonly url: string }> {
  const tokenFile = join(node.directory, "token");
  writeFileSync(tokenFile, `${node.controller.token}\n`);
  const child = spawn(
    process.execPath,
    [
      join(import.meta.dirname, "main.ts"),
      "--name=node-a",
      `--controller=${node.controller.url}`,
      `--token-file=${tokenFile}`,
      `--driver=${node.driver}`,
      `--worker=${node.worker}`,
      `--run=${node.run}`,
    ],
    { stdio: ["ignore", "ignore", "ignore", "ipc"] },
  );
  const [message] = (await once(child, "message")) as [{ readonly type: string; readonly url: string }];
  expect(message.type).toBe("ready");
  return { child, url: message.url };
}

test("sessions outlive an agent that is killed, and the next one takes them over", async () => {
  await using node = await NodeFixture.create();
  const first = await spawnAgent(node);
  await node.controller.report(({ knownRevision }) => knownRevision > 0n);
  node.controller.allocate("claim-1", "node-a", [firstDevice]);
  const ticket = node.controller.ticket("claim-1");
  const { unixPath, session } = await openSession(first, ticket);
  using client = await attach({ path: unixPath }, ticket);
  await node.controller.report(
    ({ sessions, warmWorkers }) => sessions[0]?.state === SessionState.CONNECTED && warmWorkers === 2,
  );
  const workers = node.workerProcesses();
  expect(workers).toHaveLength(3);
  first.child.kill("SIGKILL");
  await once(first.child, "exit");

  const second = await spawnAgent(node);
  const report = await node.controller.report(
    ({ agentUrl, warmWorkers, knownRevision }) =>
      agentUrl === second.url && warmWorkers === 2 && knownRevision > 0n,
  );
  expect(report.sessions).toMatchObject([
    { id: session, claim: "claim-1", state: SessionState.CONNECTED, program: "test-program" },
  ]);
  expect(node.workerProcesses()).toEqual(workers);
  expect(client.isConnected).toBe(true);
  await expect(openSession(second, ticket)).rejects.toThrow("[MILLPOND_E_TICKET_USED]");

  // The second agent can end workers that it did not start, and leaves nothing behind.
  node.controller.withdraw("claim-1");
  await client.closed;
  await node.controller.report(({ sessions }) => sessions.length === 0);
  second.child.kill("SIGTERM");
  expect(await once(second.child, "exit")).toEqual([0, null]);
  const third = await node.startAgent();
  await third.stop({ drain: "all" });
  expect(node.workerProcesses()).toEqual([]);
  expect(node.workerIds()).toEqual([]);
});
