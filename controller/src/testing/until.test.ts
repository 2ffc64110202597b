// SPDX-License-Identifier: Apache-2.0

// A wait that times out fails with a reason, long before the runner's limit.

import { createClient } from "@connectrpc/connect";
import { ClaimService } from "@millpond/api";
import { expect, test } from "vitest";
import { ControllerProcess } from "./controller-process.ts";
import { Clients, makeRandom } from "./crash-clients.ts";
import { GiB, makeTestDirectory, TestPool } from "./test-pool.ts";
import { makeTransport } from "./transport.ts";
import { until, within } from "./until.ts";

test("a wait ends with what was seen when its time is over", async () => {
  const never = new Promise<never>(() => undefined);
  await expect(within(never, () => "a bus, and none came", 5)).rejects.toThrow(
    "not within 5 ms: a bus, and none came",
  );
  await expect(until("a bus", async () => undefined, 5)).rejects.toThrow(/^not within 5 ms: a bus, asked/);
  await expect(until("a bus", () => never, 5)).rejects.toThrow("a bus: question 1 is not answered");
});

test("clients of which none runs any more are waited for by nothing", async () => {
  const controller = await ControllerProcess.start(makeTestDirectory());
  const claims = createClient(ClaimService, makeTransport(controller.url, controller.userToken));
  const clients = new Clients(makeRandom(1), []);
  await expect(clients.until(1)).rejects.toThrow("no client runs: 0 calls acknowledged");
  const running = Array.from({ length: 3 }, () => clients.run(claims));
  await clients.until(3);
  const ends = [clients.until(1_000_000), controller.end("SIGKILL"), ...running] as const;
  const [waited] = await Promise.allSettled(ends);
  expect(String(waited.status === "rejected" && waited.reason)).toMatch(
    /^Error: no client runs any more: .*0 clients at work, the last that ended: \S/,
  );
});

test("an agent that calls no more is waited for by nothing", async () => {
  const pool = await TestPool.start({ "node-a": [GiB] });
  const agent = pool.agent("node-a");
  agent.mayLoseController = true;
  const waiting = agent.until(() => false);
  const [waited] = await Promise.allSettled([waiting, pool.controller[Symbol.asyncDispose]()]);
  expect(String(waited.status === "rejected" && waited.reason)).toMatch(
    /^Error: the agent calls no more: node-a/,
  );
});
