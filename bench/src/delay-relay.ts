// SPDX-License-Identifier: Apache-2.0

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { pinned } from "./cpu-sets.ts";

/** Simulates a network between a client and a worker: all bytes are delayed, in both directions. */
export class DelayRelay implements AsyncDisposable {
  readonly port: number;
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>, port: number) {
    this.#child = child;
    this.port = port;
  }

  /**
   * @param program transport-bench
   * @param port the worker's port
   * @param microseconds the delay in each direction
   * @param cpus the processors on which it runs, from `CpuSets`
   */
  static async start(program: string, port: number, microseconds: number, cpus: string): Promise<DelayRelay> {
    const [command, args] = pinned(cpus, program, ["relay", String(port), String(microseconds)]);
    const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
    const lines = createInterface({ input: child.stdout });
    const [line] = (await Promise.race([once(lines, "line"), once(child, "exit").then(() => [""])])) as [
      string,
    ];
    if (!/^\d+$/.test(line)) throw new Error(`${program} relays nothing (status ${child.exitCode})`);
    return new DelayRelay(child, Number(line));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.stdin.end();
    await ended;
  }
}
