// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Agent, startAgent } from "@millpond/agent";
import { NodeState } from "@millpond/api";
import { makeAuthority, makeServerCertificate } from "@millpond/platform";
import { type Controller, startController } from "@millpond/controller";
import { testLog, writeFakeWorker } from "@millpond/agent/testing/fixture";
import { type Connection, connect } from "../src/connection/connection.ts";
import { writeContexts } from "../src/connection/context.ts";
import { entry } from "./entry.ts";

/** A program that attaches to a vGPU as a CUDA program would, and prints that it did. */
export const fakeClient: readonly string[] = [process.execPath, join(import.meta.dirname, "fake-client.ts")];

export interface Result {
  /** `code` is null if a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running `millpond`, with its output so far. */
export class Running {
  readonly child: ChildProcess;
  readonly finished: Promise<Result>;
  stdout = "";
  stderr = "";
  readonly #changed = new Set<() => void>();

  constructor(child: ChildProcess) {
    this.child = child;
    child.stdout?.setEncoding("utf8").on("data", (text: string) => this.#add("stdout", text));
    child.stderr?.setEncoding("utf8").on("data", (text: string) => this.#add("stderr", text));
    this.finished = once(child, "close").then(([code, signal]: unknown[]) => {
      for (const wake of this.#changed) wake();
      return {
        code: typeof code === "number" ? code : null,
        signal: typeof signal === "string" ? (signal as NodeJS.Signals) : null,
        stdout: this.stdout,
        stderr: this.stderr,
      };
    });
  }

  /** Resolves when the output matches; rejects when the process ends first. */
  async says(stream: "stdout" | "stderr", pattern: RegExp): Promise<void> {
    while (!pattern.test(this[stream])) {
      if (this.child.exitCode !== null || this.child.signalCode !== null) {
        const { stdout, stderr } = await this.finished;
        if (pattern.test(this[stream])) return;
        throw new Error(`it ended without saying ${pattern}\nstdout: ${stdout}\nstderr: ${stderr}`);
      }
      await new Promise<void>((resolve) => this.#changed.add(resolve));
      this.#changed.clear();
    }
  }

  #add(stream: "stdout" | "stderr", text: string): void {
    this[stream] += text;
    for (const wake of this.#changed) wake();
  }
}

/** A home directory for the command line: temporary directories, fake native parts, nothing from the real environment. */
export class Home implements Disposable {
  readonly directory = mkdtempSync(join(tmpdir(), "millpond-cli-"));
  readonly native = join(this.directory, "native");
  readonly state = join(this.directory, "state");
  readonly config = join(this.directory, "config.json");
  readonly softgpu = join(this.native, "softgpu", "libcuda.so.1");

  constructor() {
    for (const part of ["client", "softgpu"]) {
      mkdirSync(join(this.native, part), { recursive: true });
      writeFileSync(join(this.native, part, "libcuda.so.1"), "not a library\n");
    }
    renameSync(writeFakeWorker(this.native), join(this.native, "millpond-worker"));
  }

  get environment(): NodeJS.ProcessEnv {
    return {
      PATH: process.env["PATH"],
      HOME: this.directory,
      MILLPOND_CONFIG: this.config,
      MILLPOND_NATIVE_DIR: this.native,
      XDG_STATE_HOME: this.state,
    };
  }

  start(args: readonly string[], environment: NodeJS.ProcessEnv = {}): Running {
    const child = spawn(process.execPath, [entry, ...args], {
      cwd: this.directory,
      env: { ...this.environment, ...environment },
      stdio: ["pipe", "pipe", "pipe"],
    });
    return new Running(child);
  }

  /** Runs `millpond` to its end, its standard input empty or `input`. */
  millpond(
    args: readonly string[],
    options: { readonly environment?: NodeJS.ProcessEnv; readonly input?: string } = {},
  ): Promise<Result> {
    const running = this.start(args, options.environment);
    running.child.stdin?.end(options.input ?? "");
    return running.finished;
  }

  [Symbol.dispose](): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

function makeCertificates(directory: string): string {
  const validity = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 3_600_000) };
  const authority = makeAuthority("Test", validity);
  const { certificate, key } = makeServerCertificate(authority, ["127.0.0.1"], validity);
  writeFileSync(join(directory, "ca.crt"), authority.certificate);
  writeFileSync(join(directory, "tls.crt"), certificate);
  writeFileSync(join(directory, "tls.key"), key, { mode: 0o600 });
  return authority.certificate;
}

/** A pool of one node with one device of 4 GiB, its parts inside this process, and a home whose context is this pool. */
export class PoolFixture implements AsyncDisposable {
  readonly home: Home;
  readonly connection: Connection;
  #controller: Controller;
  #agent: Agent;
  readonly #startAgent: () => Promise<Agent>;

  private constructor(
    home: Home,
    controller: Controller,
    { agent, startAgain }: { readonly agent: Agent; readonly startAgain: () => Promise<Agent> },
    ca: string | undefined,
  ) {
    this.home = home;
    this.#controller = controller;
    this.#agent = agent;
    this.#startAgent = startAgain;
    const at = { controller: controller.url, token: controller.userToken, ca };
    this.connection = connect({ ...at, source: "the test" });
    writeContexts(home.config, { currentContext: "test", contexts: { test: at } });
  }

  /** @param tls Whether the controller has TLS, with an authority in `ca.crt` of the home. */
  static async start({ tls = false } = {}): Promise<PoolFixture> {
    const home = new Home();
    const ca = tls ? makeCertificates(home.directory) : undefined;
    const controller = await startController({
      stateDirectory: join(home.directory, "controller"),
      listen: "127.0.0.1:0",
      ...(tls
        ? { tlsCertificate: join(home.directory, "tls.crt"), tlsKey: join(home.directory, "tls.key") }
        : {}),
      log: testLog,
    });
    const startAgain = (): Promise<Agent> =>
      startAgent({
        name: "node-a",
        controller: controller.url,
        ca,
        token: controller.agentToken,
        drivers: [home.softgpu],
        worker: join(home.native, "millpond-worker"),
        run: join(home.directory, "run"),
        closeTimeoutMs: 500,
        log: testLog,
      });
    const fixture = new PoolFixture(home, controller, { agent: await startAgain(), startAgain }, ca);
    await fixture.#untilReady();
    return fixture;
  }

  async #untilReady(): Promise<void> {
    await this.until(async ({ pool }) => {
      const { nodes } = await pool.listNodes({});
      return nodes.some((node) => node.state === NodeState.READY && node.warmWorkers > 0);
    });
  }

  /** Stops the agent with its workers, calls `act`, and starts the agent. */
  async whileNoAgentRuns(act: () => void): Promise<void> {
    await this.#agent.stop({ drain: "all" });
    act();
    this.#agent = await this.#startAgent();
    await this.#untilReady();
  }

  /** Stops only the controller, as if the network were cut. */
  async stopController(): Promise<void> {
    await this.#controller[Symbol.asyncDispose]();
  }

  /** Restarts the controller with its state, at the same address. */
  async startController(): Promise<void> {
    this.#controller = await startController({
      stateDirectory: join(this.home.directory, "controller"),
      listen: new URL(this.#controller.url).host,
      log: testLog,
    });
  }

  /** Throws if a claim is left, pending or bound. */
  async expectNoClaims(): Promise<void> {
    const names = (await this.connection.claims.listClaims({})).claims.map(({ name }) => name);
    if (names.length > 0) throw new Error(`there are claims left: ${names.join(", ")}`);
  }

  /** Resolves when `isSo` resolves to true; polls every few milliseconds. */
  async until(isSo: (connection: Connection) => Promise<boolean>): Promise<void> {
    const deadline = Date.now() + 120_000;
    while (!(await isSo(this.connection))) {
      if (Date.now() > deadline) throw new Error("still not so after 120 s");
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.stop({ drain: "all" });
    await this.#controller[Symbol.asyncDispose]();
    this.home[Symbol.dispose]();
  }
}

/** Process ids of the children of a process, as the kernel prints them. */
export function childrenOf(pid: number | undefined): string {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
}
