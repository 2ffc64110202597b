// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Upper bound on the time until a pool is ready, and until it has a warm worker again. */
const readyTimeoutMs = 120_000;
const pollMs = 20;

/** A controller and an agent on this host, as `millpond up` starts them, in a directory of their own. */
export class BenchPool implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #directory: string;
  readonly #controller: string;
  readonly #token: string;

  private constructor(child: ChildProcess, directory: string, controller: string, token: string) {
    this.#child = child;
    this.#directory = directory;
    this.#controller = controller;
    this.#token = token;
  }

  /**
   * @param root the repository's root, or the unpacked archive's
   * @param upOptions further options of `millpond up`; default: none
   * @param wrapper command that the pool is run through; default: none
   */
  static async start(options: {
    readonly root: string;
    readonly isSoft: boolean;
    readonly upOptions?: readonly string[];
    readonly wrapper?: readonly string[];
  }): Promise<BenchPool> {
    const directory = await mkdtemp(join(tmpdir(), "millpond-bench-pool-"));
    const config = join(directory, "config.json");
    const args = [join(options.root, "cli", "bin", "millpond.mjs"), "up", "--listen", "127.0.0.1:0"];
    args.push("--state", join(directory, "state"));
    if (options.isSoft) args.push("--soft");
    args.push(...(options.upOptions ?? []));
    const env = { ...process.env, MILLPOND_CONFIG: config };
    const [command = "", ...all] = [...(options.wrapper ?? []), process.execPath, ...args];
    const child = spawn(command, all, { env, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    const isReady = new Promise<void>((resolve, reject) => {
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("utf8").on("data", (text: string) => {
          said += text;
          // Printed once everything runs and the context is written.
          if (said.includes("the pool is ready")) resolve();
        });
      }
      child.on("error", reject);
      child.on("exit", () => reject(new Error(`millpond up ended:\n${said.trim()}`)));
    });
    try {
      await isReady;
      const { currentContext, contexts } = JSON.parse(await readFile(config, "utf8")) as {
        currentContext: string;
        contexts: Record<string, { controller: string; token: string }>;
      };
      const context = contexts[currentContext];
      if (context === undefined) throw new Error(`millpond up wrote no context into ${config}`);
      return new BenchPool(child, directory, context.controller, context.token);
    } catch (error) {
      await end(child, directory);
      throw error;
    }
  }

  /** The environment of a client of this pool. */
  environment(transport: "shm" | "tcp"): Record<string, string> {
    return {
      MILLPOND_CONTROLLER: this.#controller,
      MILLPOND_TOKEN: this.#token,
      MILLPOND_TRANSPORT: transport,
    };
  }

  /** The services of the pool: controller and agent, each a process. */
  async services(): Promise<readonly { readonly name: string; readonly pid: number }[]> {
    const pid = this.#child.pid ?? 0;
    const children = (await readFile(`/proc/${pid}/task/${pid}/children`, "utf8")).trim().split(" ");
    return await Promise.all(
      children.map(async (child) => {
        const words = (await readFile(`/proc/${child}/cmdline`, "utf8")).split("\0");
        const name = ["controller", "agent"].find((each) => words.includes(each));
        return { name: name ?? `process ${child}`, pid: Number(child) };
      }),
    );
  }

  /** Waits until the previous session has ended and a worker is warm. */
  async warm(): Promise<void> {
    const deadline = Date.now() + readyTimeoutMs;
    for (;;) {
      const { nodes } = (await this.ask("PoolService/ListNodes")) as { nodes: { warmWorkers: number }[] };
      const { sessions } = (await this.ask("PoolService/ListSessions")) as { sessions: unknown[] };
      if (sessions.length === 0 && nodes.some(({ warmWorkers }) => warmWorkers > 0)) return;
      if (Date.now() > deadline) throw new Error("the pool has no warm worker");
      await sleep(pollMs);
    }
  }

  /** Calls a method of the controller, `PoolService/ListNodes`, with the token of `millpond up`. */
  async ask(method: string, request: object = {}): Promise<unknown> {
    const response = await fetch(`${this.#controller}/millpond.v1.${method}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${this.#token}` },
      body: JSON.stringify(request),
    });
    if (!response.ok) throw new Error(`${method}: ${await response.text()}`);
    return response.json();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await end(this.#child, this.#directory);
  }
}

async function end(child: ChildProcess, directory: string): Promise<void> {
  if (child.exitCode === null && child.signalCode === null && child.pid !== undefined) {
    const exited = once(child, "exit");
    child.kill("SIGTERM");
    await exited;
  }
  await rm(directory, { recursive: true, force: true });
}
