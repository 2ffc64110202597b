// SPDX-License-Identifier: Apache-2.0

// A pool beside a control plane: a real controller, and agents that speak the real protocol and have no workers.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Connection, connect } from "@millpond/cli";
import { type Controller, startController } from "@millpond/controller";
import { pino } from "pino";
import { FakeAgent, fakeDevice } from "@millpond/controller/testing/fake-agent";
import { systemClock } from "@millpond/controller";

export const testLog = pino(
  { level: process.env["MILLPOND_TEST_LOG"] ?? "silent" },
  pino.destination({ fd: 2, sync: true }),
);

export class TestPool implements AsyncDisposable {
  readonly directory: string;
  readonly agents: FakeAgent[] = [];
  controller: Controller;
  #listen: string;

  private constructor(directory: string, controller: Controller) {
    this.directory = directory;
    this.controller = controller;
    this.#listen = new URL(controller.url).host;
  }

  /** @param nodes The memory of each device, by node. */
  static async start(nodes: Readonly<Record<string, readonly bigint[]>>): Promise<TestPool> {
    const directory = mkdtempSync(join(tmpdir(), "millpond-pool-"));
    const pool = new TestPool(directory, await startAt(directory, "127.0.0.1:0"));
    for (const [node, memories] of Object.entries(nodes)) await pool.addNode(node, memories);
    return pool;
  }

  /** With the rights of an administrator. */
  connect(): Connection {
    return connect({ controller: this.controller.url, token: this.controller.userToken, source: "the test" });
  }

  async addNode(node: string, memories: readonly bigint[]): Promise<FakeAgent> {
    const agent = new FakeAgent({
      url: this.controller.url,
      token: this.controller.agentToken,
      clock: systemClock,
      node,
      devices: memories.map((memory, index) => fakeDevice(index, memory)),
    });
    agent.isPersistent = true;
    await agent.start();
    this.agents.push(agent);
    return agent;
  }

  /** As if it had been killed and restarted on the same port. */
  async restartController(): Promise<void> {
    await this.controller[Symbol.asyncDispose]();
    this.controller = await startAt(this.directory, this.#listen);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const agent of this.agents) await agent[Symbol.asyncDispose]();
    await this.controller[Symbol.asyncDispose]();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

async function startAt(stateDirectory: string, listen: string): Promise<Controller> {
  return await startController({ stateDirectory, listen, log: testLog });
}
