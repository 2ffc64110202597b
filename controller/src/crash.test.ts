// SPDX-License-Identifier: Apache-2.0

// kill -9 at any moment: what was acknowledged is there afterwards, and nothing is granted twice.

import { createClient } from "@connectrpc/connect";
import { ClaimService, PoolService } from "@millpond/api";
import { expect, test } from "vitest";
import { systemClock } from "./clock.ts";
import { ControllerProcess } from "./testing/controller-process.ts";
import { FakeAgent, fakeDevice } from "./testing/fake-agent.ts";
import { Clients, deviceMemory, devicesPerNode, makeRandom } from "./testing/crash-clients.ts";
import { makeTestDirectory } from "./testing/test-pool.ts";
import { makeTransport } from "./testing/transport.ts";

/** How often it is killed; `MILLPOND_CRASH_ROUNDS` asks for more. */
const rounds = Number(process.env["MILLPOND_CRASH_ROUNDS"] ?? 20);
const timeoutMs = rounds * 30_000;
const seed = 20_261_120;

async function startAgents(controller: ControllerProcess): Promise<FakeAgent[]> {
  const devices = Array.from({ length: devicesPerNode }, (_, index) => fakeDevice(index, deviceMemory));
  const { url, agentToken: token } = controller;
  return await Promise.all(
    ["node-a", "node-b"].map(async (node) => {
      const agent = new FakeAgent({ url, token, clock: systemClock, node, devices });
      agent.mayLoseController = true;
      return await agent.start();
    }),
  );
}

test(`after ${rounds} kills nothing acknowledged is lost and nothing is granted twice`, {
  timeout: timeoutMs,
}, async () => {
  const directory = makeTestDirectory();
  const random = makeRandom(seed);
  const clients = new Clients(random);
  const broken: string[] = [];

  for (let round = 0; round <= rounds; round++) {
    const controller = await ControllerProcess.start(directory);
    const transport = makeTransport(controller.url, controller.userToken);
    const claims = createClient(ClaimService, transport);
    const found = (await claims.listClaims({ includeEnded: true })).claims;
    const { devices } = await createClient(PoolService, transport).listDevices({});
    broken.push(...clients.takeStock(found, devices));
    if (round === rounds) {
      expect(await controller.end("SIGTERM")).toBe(0);
      break;
    }

    const agents = await startAgents(controller);
    // Nobody releases the claim that was put into the queue before the first kill: it must be there after it.
    const running = round === 0 ? [] : Array.from({ length: 8 }, () => clients.run(claims));
    await (round === 0 ? clients.requeueOne(claims) : clients.until(5 + Math.floor(random() * 60)));
    expect(await controller.end("SIGKILL")).toBe("SIGKILL");
    await Promise.all(running);
    await Promise.all(agents.map((agent) => agent[Symbol.asyncDispose]()));
  }

  expect(broken).toEqual([]);
  expect(clients.acknowledged).toBeGreaterThan(rounds * 5);
  expect(clients.grants).toBeGreaterThan(rounds);
  expect(clients.requeues).toBeGreaterThan(0);
});
