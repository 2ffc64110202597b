// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, createClient } from "@connectrpc/connect";
import { ClaimService, errorCodeOf, PoolService } from "@millpond/api";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import { type Controller, startController } from "../controller.ts";
import type { ControllerOptions } from "../options.ts";
import { FakeAgent, fakeDevice } from "./fake-agent.ts";
import { ManualClock } from "./manual-clock.ts";
import { makeTransport } from "./transport.ts";

export const GiB = 1n << 30n;

/** A directory that is deleted after the test. */
export function makeTestDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "millpond-controller-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

type TestPoolOptions = Pick<ControllerOptions, "oidc">;

/** A real controller on a free port, with a clock that stands still. Everything is stopped after the test. */
export class TestPool {
  readonly clock: ManualClock;
  readonly directory: string;
  readonly agents: FakeAgent[] = [];
  controller: Controller;
  claims: Client<typeof ClaimService>;
  pool: Client<typeof PoolService>;

  readonly #options: TestPoolOptions;

  private constructor(
    directory: string,
    clock: ManualClock,
    controller: Controller,
    options: TestPoolOptions,
  ) {
    this.#options = options;
    this.directory = directory;
    this.clock = clock;
    this.controller = controller;
    const transport = makeTransport(controller.url, controller.userToken);
    this.claims = createClient(ClaimService, transport);
    this.pool = createClient(PoolService, transport);
  }

  /** @param nodes The memory of each device, by node. */
  static async start(
    nodes: Readonly<Record<string, readonly bigint[]>> = {},
    options: TestPoolOptions = {},
  ): Promise<TestPool> {
    const directory = makeTestDirectory();
    const clock = new ManualClock();
    const pool = new TestPool(directory, clock, await start(directory, clock, options), options);
    onTestFinished(() => pool.stop());
    for (const [node, memories] of Object.entries(nodes)) {
      await pool.addAgent(node, memories);
    }
    return pool;
  }

  /**
   * @param options.before The node's previous agent, which was killed.
   * @param options.isObedient Whether it ends the sessions whose allocation is gone. Default true.
   */
  async addAgent(
    node: string,
    memories: readonly bigint[],
    options: {
      readonly token?: string;
      readonly before?: FakeAgent;
      readonly isObedient?: boolean;
      /** Overhead of a session on each device. Default: none. */
      readonly overheadBytes?: bigint;
    } = {},
  ): Promise<FakeAgent> {
    const agent = new FakeAgent({
      url: this.controller.url,
      token: options.token ?? this.controller.agentToken,
      before: options.before,
      clock: this.clock,
      node,
      devices: memories.map((memory, index) => ({
        ...fakeDevice(index, memory),
        overheadBytes: options.overheadBytes ?? 0n,
      })),
    });
    agent.isObedient = options.isObedient ?? true;
    await agent.start();
    this.agents.push(agent);
    return agent;
  }

  agent(node: string): FakeAgent {
    const agent = this.agents.find((each) => each.node === node);
    if (agent === undefined) {
      throw new Error(`there is no agent ${node}`);
    }
    return agent;
  }

  /** Lets time pass while the agents keep calling. */
  async passTime(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      this.clock.advance(1000);
      await Promise.all(this.agents.map((agent) => agent.sync()));
      await this.settle();
    }
  }

  /**
   * Waits until pending work is over: tickets are created between changes, after the concurrent requests before them.
   */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 2; turn++) {
      const outcome = await this.claims.createTicket({ claim: "nobody" }).then(() => undefined, errorCodeOf);
      // A restored state does not know its running sessions at first.
      if (outcome !== "MILLPOND_E_NOT_FOUND" && outcome !== "MILLPOND_E_NOT_LEADER") {
        throw new Error(`the controller answers ${outcome}`);
      }
    }
  }

  /** Kills an agent, which is silent from then on. */
  async killAgent(node: string): Promise<void> {
    const agent = this.agent(node);
    this.agents.splice(this.agents.indexOf(agent), 1);
    await agent[Symbol.asyncDispose]();
  }

  /** Stops the controller and the agents, and starts the controller again on the same state. */
  async restart(): Promise<void> {
    await this.stop();
    this.controller = await start(this.directory, this.clock, this.#options);
    const transport = makeTransport(this.controller.url, this.controller.userToken);
    this.claims = createClient(ClaimService, transport);
    this.pool = createClient(PoolService, transport);
  }

  async stop(): Promise<void> {
    await Promise.all(this.agents.splice(0).map((agent) => agent[Symbol.asyncDispose]()));
    await this.controller[Symbol.asyncDispose]();
  }
}

async function start(directory: string, clock: ManualClock, options: TestPoolOptions): Promise<Controller> {
  return await startController({
    ...options,
    stateDirectory: directory,
    listen: "127.0.0.1:0",
    clock,
    log: pino({ level: "silent" }),
  });
}
