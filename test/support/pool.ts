// SPDX-License-Identifier: Apache-2.0
// A pool of software GPUs made of the real parts, and the questions that tests ask of it.
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { entry } from "@millpond/cli/testing/entry";
import { Lists } from "@millpond/cli/testing/lists";
import { processesWith } from "../../scripts/lib/background.ts";
import { inRoot, nativeDir } from "../../scripts/lib/paths.ts";
import { Program, type Result } from "./program.ts";

/** The checked-in program of all examples. */
export const examples = inRoot("examples", "prebuilt", "millpond-examples");
export const clientDirectory = join(nativeDir("release"), "client");

const readyTimeoutMs = 120_000;

export interface SessionView {
  readonly id: string;
  readonly claim: string;
  readonly node: string;
  readonly state: string;
  readonly transport: string;
  readonly clientPid: number;
  readonly devices: readonly { readonly uuid: string; readonly memoryUsedBytes: number }[];
}
export interface ClaimView {
  readonly name: string;
  readonly state: string;
  readonly reason: string;
}
export interface NodeView {
  readonly name: string;
  readonly state: string;
  readonly warmWorkers: number;
  readonly agentUrl: string;
}
export interface DeviceView {
  readonly uuid: string;
  readonly health: "healthy" | "unhealthy";
  readonly healthReason: string;
  readonly allocatedMemoryBytes: number;
  readonly usedMemoryBytes: number;
}

/** Usage as the controller reports it; empty when the pool is unused. */
export interface Usage {
  readonly claims: readonly string[];
  readonly sessions: readonly string[];
  /** UUIDs of devices whose memory is granted or in use. */
  readonly devices: readonly string[];
}

export class Pool implements AsyncDisposable {
  readonly directory: string = mkdtempSync(join(tmpdir(), "millpond-e2e-"));
  #up: Program | undefined;
  #context: { readonly controller: string; readonly token: string } | undefined;

  /** `millpond up --soft` with these options. */
  static async start(...options: string[]): Promise<Pool> {
    const pool = new Pool();
    try {
      const state = join(pool.directory, "state");
      pool.#up = pool.start(["up", "--soft", "--state", state, "--listen", "127.0.0.1:0", ...options]);
      await pool.#up.says("stdout", /the pool is ready/, readyTimeoutMs);
      return pool;
    } catch (error) {
      await pool[Symbol.asyncDispose]();
      throw error;
    }
  }

  get #environment(): NodeJS.ProcessEnv {
    return {
      PATH: process.env["PATH"],
      HOME: this.directory,
      MILLPOND_CONFIG: join(this.directory, "config.json"),
    };
  }

  /** The output of `up` on standard error. */
  get complaints(): string {
    return this.#up?.stderr ?? "";
  }

  start(args: readonly string[], environment: NodeJS.ProcessEnv = {}): Program {
    const child = spawn(process.execPath, [entry, ...args], {
      cwd: this.directory,
      env: { ...this.#environment, ...environment },
      stdio: ["pipe", "pipe", "pipe"],
    });
    return new Program(child);
  }

  /** Runs `millpond` to its end with empty standard input. */
  async millpond(args: readonly string[]): Promise<Result> {
    const program = this.start(args);
    program.endInput();
    return program.finished;
  }

  /** Runs one of the examples: `options` belong to `run`, `args` are the example's name and arguments. */
  run(options: readonly string[], args: readonly string[]): Promise<Result> {
    return this.millpond(["run", ...options, "--", examples, ...args]);
  }

  /** Starts an example that holds 8 MiB of device memory, and lets the processor rest, until it is stopped. */
  startHolder(options: readonly string[]): Program {
    return this.start(["run", ...options, "--", examples, "memhold", "8"]);
  }

  /** Starts an example that computes until it is stopped. */
  startEndless(options: readonly string[]): Program {
    return this.start(["run", ...options, "--", examples, "vectoradd", "1000", "--repeat", "100000000"]);
  }

  get #lists(): Lists {
    return new Lists(this.#endpoint);
  }
  sessions(): Promise<readonly SessionView[]> {
    return this.#lists.sessions();
  }
  claims(): Promise<readonly ClaimView[]> {
    return this.#lists.claims();
  }
  nodes(): Promise<readonly NodeView[]> {
    return this.#lists.nodes();
  }
  devices(): Promise<readonly DeviceView[]> {
    return this.#lists.devices();
  }

  /** Resolves with the sessions once `count` of them are connected. */
  connected(count: number): Promise<readonly SessionView[]> {
    return until(
      `${count} connected sessions`,
      async () => (await this.sessions()).filter(({ state }) => state === "connected"),
      (sessions) => sessions.length === count,
    );
  }

  /** Resolves when the pool is unused: no sessions, no claims, no memory in use. */
  async isClean(): Promise<void> {
    await until(
      "no sessions",
      () => this.sessions(),
      (all) => all.length === 0,
    );
    await until(
      "no claims",
      () => this.claims(),
      (all) => all.length === 0,
    );
    await until(
      "no memory in use",
      () => this.devices(),
      (all) => all.every((device) => device.allocatedMemoryBytes === 0 && device.usedMemoryBytes === 0),
    );
    await until(
      "no serving worker",
      () => this.servingWorkers(),
      (all) => all.length === 0,
    );
  }

  /** Calls the controller directly, which takes a few milliseconds where a command takes hundreds. */
  async #ask<T>(method: string, request: object = {}): Promise<T> {
    const { MILLPOND_CONTROLLER: base, MILLPOND_TOKEN: token } = this.containerEnvironment({});
    const response = await fetch(`${base}/millpond.v1.${method}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: JSON.stringify(request),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    return JSON.parse(text) as T;
  }

  /** Changes the memory of each vGPU of a claim. */
  async resize(name: string, memoryBytes: number): Promise<void> {
    await this.#ask("ClaimService/ResizeClaim", { name, memoryBytes: String(memoryBytes) });
  }

  /** In the API's notation: `CLAIM_STATE_DORMANT`. */
  async claimState(name: string): Promise<string> {
    return (await this.#ask<{ claim: { state: string } }>("ClaimService/GetClaim", { name })).claim.state;
  }

  /** Including claims that have ended. */
  async allClaims(): Promise<readonly { readonly name: string; readonly owner: string }[]> {
    type Listed = { readonly name: string; readonly owner: string };
    return (await this.#ask<{ claims: Listed[] }>("ClaimService/ListClaims", { includeEnded: true })).claims;
  }

  async usage(): Promise<Usage> {
    type Sized = {
      readonly uuid: string;
      readonly allocatedMemoryBytes: string;
      readonly usedMemoryBytes: string;
    };
    const [{ claims }, { sessions }, { devices }] = await Promise.all([
      this.#ask<{ claims: { name: string }[] }>("ClaimService/ListClaims"),
      this.#ask<{ sessions: { id: string }[] }>("PoolService/ListSessions"),
      this.#ask<{ devices: Sized[] }>("PoolService/ListDevices"),
    ]);
    return {
      claims: claims.map(({ name }) => name),
      sessions: sessions.map(({ id }) => id),
      devices: devices
        .filter(({ allocatedMemoryBytes: granted, usedMemoryBytes: used }) => granted !== "0" || used !== "0")
        .map(({ uuid }) => uuid),
    };
  }

  /** Processes of the pool whose command line matches. */
  async processes(pattern: RegExp): Promise<readonly number[]> {
    const all = await processesWith(this.directory);
    return all.filter(({ command }) => pattern.test(command)).map(({ pid }) => pid);
  }

  /** Workers that serve a session: they have the thread that issues its commands. */
  async servingWorkers(): Promise<readonly number[]> {
    const workers = await this.processes(/millpond-worker .*--control/);
    return workers.filter((pid) => threadNames(pid).includes("millpond-issue"));
  }

  /** The environment of a container without the CLI. */
  containerEnvironment(wishes: Record<string, string>): NodeJS.ProcessEnv {
    const { controller, token } = this.#endpoint;
    return {
      PATH: process.env["PATH"],
      LD_LIBRARY_PATH: clientDirectory,
      MILLPOND_CONTROLLER: controller,
      MILLPOND_TOKEN: token,
      ...wishes,
    };
  }

  /** Between an `up` that has ended and the next one there is no context: then it is the last one. */
  get #endpoint(): { readonly controller: string; readonly token: string } {
    const file = JSON.parse(readFileSync(join(this.directory, "config.json"), "utf8")) as {
      currentContext: string;
      contexts: Record<string, { controller: string; token: string }>;
    };
    const context = file.contexts[file.currentContext] ?? this.#context;
    if (context === undefined) throw new Error("up wrote no context");
    this.#context = context;
    return context;
  }

  /** Stops the pool. Throws when a process of it outlives `up`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#up?.signal("SIGINT");
    const result = await this.#up?.finished;
    const left = await processesWith(this.directory);
    for (const { pid } of left) process.kill(pid, "SIGKILL");
    rmSync(this.directory, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind: ${left.map(({ command }) => command).join("; ")}`);
    if (result !== undefined && result.status !== 0) {
      throw new Error(`up ended with ${result.status}: ${result.stderr}`);
    }
  }
}

function threadNames(pid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/task`).map((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/comm`, "utf8").trim(),
    );
  } catch (error) {
    // It ended while it was examined.
    if (
      (error as NodeJS.ErrnoException).code === "ENOENT" ||
      (error as NodeJS.ErrnoException).code === "ESRCH"
    )
      return [];
    throw error;
  }
}

/** Polls until the answer is good. Throws with the last one when that takes too long. */
export async function until<T>(
  what: string,
  ask: () => Promise<T>,
  isGood: (answer: T) => boolean,
  timeoutMs = 120_000,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    if (isGood(answer)) return answer;
    if (performance.now() > deadline)
      throw new Error(`${what}: not within ${timeoutMs} ms; last: ${inspect(answer, { depth: 8 })}`);
    await sleep(100);
  }
}
