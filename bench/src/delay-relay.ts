// SPDX-License-Identifier: Apache-2.0

import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { pinned } from "./cpu-sets.ts";

/** Stands in for a network between a client and a worker: all bytes arrive later, both ways. */
export class DelayRelay implements AsyncDisposable {
  readonly port: number;
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>, port: number) {
    this.#child = child;
    this.port = port;
  }

  /**
   * @param program transport-bench
   * @param port the worker's
   * @param microseconds the delay of each direction
   * @param cpus where it runs, as `CpuSets` has them
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
