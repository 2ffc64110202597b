// SPDX-License-Identifier: Apache-2.0

import { once } from "node:events";
import { chmodSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { NodeService, type OpenSessionResponse } from "@millpond/api";
import { agentTransportOptions } from "@millpond/platform";
import { type Logger, pino } from "pino";
import { type Agent, startAgent } from "../src/agent.ts";
import type { AgentOptions } from "../src/options.ts";
import {
  findProcessesByArgument,
  type ProcessIdentity,
  signalProcess,
} from "../src/process/process-identity.ts";
import { FakeController } from "./fake-controller.ts";
import type { FakeDriver } from "./fake-worker.ts";

const fakeWorkerScript = join(import.meta.dirname, "fake-worker.ts");

/** Silent, or at the level that MILLPOND_TEST_LOG names: `debug`, `info`. */
export const testLog: Logger = pino(
  { level: process.env["MILLPOND_TEST_LOG"] ?? "silent" },
  pino.destination({ fd: 2, sync: true }),
);

export const firstDevice = "GPU-fake-0";
export const secondDevice = "GPU-fake-1";

const twoDevices: FakeDriver = {
  devices: [
    { uuid: firstDevice, memoryBytes: 4 * 2 ** 30 },
    { uuid: secondDevice, memoryBytes: 4 * 2 ** 30 },
  ],
};

/** A temporary node: a controller, a driver file, a worker program, and the agents that a test starts on it. */
export class NodeFixture implements AsyncDisposable {
  readonly directory = mkdtempSync(join(tmpdir(), "millpond-agent-"));
  readonly run = join(this.directory, "run");
  readonly driver = join(this.directory, "driver.json");
  readonly worker = writeFakeWorker(this.directory);
  readonly controller: FakeController;
  readonly #agents: Agent[] = [];

  private constructor(controller: FakeController) {
    this.controller = controller;
    this.setDriver({});
  }

  static async create(): Promise<NodeFixture> {
    return new NodeFixture(await FakeController.start());
  }

  /** Changes the behaviour of workers that start from now on, and the health of devices. */
  setDriver(change: FakeDriver): void {
    const written = `${this.driver}.new`;
    writeFileSync(written, JSON.stringify({ ...twoDevices, ...change }));
    renameSync(written, this.driver);
  }

  agentOptions(change: Partial<AgentOptions> = {}): AgentOptions {
    return {
      name: "node-a",
      controller: this.controller.url,
      token: this.controller.token,
      drivers: [this.driver],
      worker: this.worker,
      run: this.run,
      closeTimeoutMs: 300,
      restartFirstMs: 50,
      restartCeilingMs: 200,
      log: testLog,
      ...change,
    };
  }

  async startAgent(change: Partial<AgentOptions> = {}): Promise<Agent> {
    const agent = await startAgent(this.agentOptions(change));
    this.#agents.push(agent);
    return agent;
  }

  /** Starts an agent and waits until the controller has answered it. */
  async startKnownAgent(change: Partial<AgentOptions> = {}): Promise<Agent> {
    const agent = await this.startAgent(change);
    await this.controller.report((report) => report.agentUrl === agent.url && report.knownRevision > 0n);
    return agent;
  }

  /** Names of the workers' directories that exist now. */
  workerIds(): string[] {
    return readdirSync(join(this.run, "workers")).sort();
  }

  /** Worker processes of this node, of any agent. */
  workerProcesses(): ProcessIdentity[] {
    const pidsWith = (argument: string) => new Set(findProcessesByArgument(argument).map(({ pid }) => pid));
    const fakes = pidsWith(fakeWorkerScript);
    const watching = pidsWith("--health");
    return findProcessesByArgument(this.driver).filter(({ pid }) => fakes.has(pid) && !watching.has(pid));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const agent of this.#agents) await agent.stop({ drain: "all" });
    await this.controller[Symbol.asyncDispose]();
    const left = this.workerProcesses();
    for (const worker of left) signalProcess(worker, "SIGKILL");
    rmSync(this.directory, { recursive: true });
    if (left.length > 0) throw new Error(`${left.length} worker processes were left behind`);
  }
}

/** A program that runs the fake worker on the same Node executable. */
export function writeFakeWorker(directory: string): string {
  const path = join(directory, "fake-worker");
  writeFileSync(path, `#!/bin/sh\nexec '${process.execPath}' '${fakeWorkerScript}' "$@"\n`);
  chmodSync(path, 0o755);
  return path;
}

export function openSession(
  agent: Pick<Agent, "url">,
  ticket: string,
  transport = "auto",
): Promise<OpenSessionResponse> {
  const client = createClient(NodeService, createConnectTransport(agentTransportOptions(agent.url)));
  return client.openSession({ ticket, transport });
}

/** A client of a worker: connected from `attach` until `end`, or until the worker ends it. */
export class TestClient implements Disposable {
  readonly #socket: Socket;
  /** Resolves when the connection is gone. */
  readonly closed: Promise<void>;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => socket.once("close", () => resolve()));
  }

  get isConnected(): boolean {
    return !this.#socket.destroyed;
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}

/** Connects to the worker of a session as its client does. Resolves when the worker has accepted it. */
export async function attach(
  target: { readonly path: string } | { readonly host: string; readonly port: number },
  ticket: string,
): Promise<TestClient> {
  const socket = createConnection(target);
  socket.on("error", () => undefined);
  socket.write(`${JSON.stringify({ ticket, clientPid: process.pid, program: "test-program" })}\n`);
  const [answer] = (await once(socket, "data")) as [Buffer];
  if (answer.toString() !== "ok\n") throw new Error(`the worker said ${answer.toString()}`);
  return new TestClient(socket);
}

/** Resolves when `isSo` holds; polls every few milliseconds. Rejects shortly before the test would time out. */
export async function until(isSo: () => boolean, what: string): Promise<void> {
  const deadline = Date.now() + 120_000;
  while (!isSo()) {
    if (Date.now() > deadline) throw new Error(`still not so after 120 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
