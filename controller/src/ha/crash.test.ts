// SPDX-License-Identifier: Apache-2.0

// kill -9 at any moment: acknowledged changes survive, and nothing is granted twice.

import { createClient } from "@connectrpc/connect";
import { ClaimService, PoolService } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { ControllerProcess } from "../testing/controller-process.ts";
import { Clients, makeRandom } from "../testing/crash-clients.ts";
import { TestNode } from "../testing/test-node.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import { makeTransport } from "../testing/transport.ts";

/** How often it is killed; `MILLPOND_CRASH_ROUNDS` asks for more. */
const rounds = Number(process.env["MILLPOND_CRASH_ROUNDS"] ?? 12);
const timeoutMs = rounds * 30_000;
const seed = 20_261_120;

function agentsOf({ url, agentToken: token }: ControllerProcess) {
  return { url, token };
}

test(`after ${rounds} kills nothing acknowledged is lost and nothing is granted twice`, {
  timeout: timeoutMs,
}, async () => {
  const directory = makeTestDirectory();
  const random = makeRandom(seed);
  const broken: string[] = [];
  let controller = await ControllerProcess.start(directory);
  const nodes = ["node-a", "node-b"].map((name) => new TestNode(name, agentsOf(controller)));
  onTestFinished(async () => {
    await Promise.all(nodes.map((node) => node[Symbol.asyncDispose]()));
  });
  const clients = new Clients(random, nodes);

  for (let round = 0; round < rounds; round++) {
    const claims = createClient(ClaimService, makeTransport(controller.url, controller.userToken));
    await Promise.all(nodes.map((node) => node.agent.until(() => true)));
    // The claim that was queued before the first kill is never released: it must exist after it.
    const running = round === 0 ? [] : Array.from({ length: 8 }, () => clients.run(claims));
    await (round === 0 ? clients.requeueOne(claims) : clients.until(5 + Math.floor(random() * 60)));
    expect(await controller.end("SIGKILL")).toBe("SIGKILL");
    await Promise.all(running);

    controller = await ControllerProcess.start(directory);
    const transport = makeTransport(controller.url, controller.userToken);
    const found = await createClient(ClaimService, transport).listClaims({ includeEnded: true });
    const { devices } = await createClient(PoolService, transport).listDevices({});
    broken.push(...clients.takeStock(found.claims, devices));
    await Promise.all(nodes.map((node) => node.replaceAgent(agentsOf(controller))));
  }

  expect(await controller.end("SIGTERM")).toBe(0);
  expect(broken).toEqual([]);
  expect(clients.acknowledged).toBeGreaterThan(rounds * 5);
  expect(clients.grants).toBeGreaterThan(rounds);
  expect(clients.requeues).toBeGreaterThan(0);
  expect(Object.entries(clients.deeds).filter(([, times]) => times === 0)).toEqual([]);
});
