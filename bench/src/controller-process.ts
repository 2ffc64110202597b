// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";

const program = join(import.meta.dirname, "..", "..", "controller", "src", "main.ts");

/** Unit of the times in /proc, seconds: the kernel tells them to programs in hundredths. */
const tickSeconds = 0.01;

/** A controller in a process of its own, on a free port of the loopback interface. */
export class ControllerProcess {
  readonly url: string;
  readonly userToken: string;
  readonly agentToken: string;
  readonly #child: ChildProcess;

  private constructor(
    child: ChildProcess,
    url: string,
    tokens: { readonly user: string; readonly agent: string },
  ) {
    this.#child = child;
    this.url = url;
    this.userToken = tokens.user;
    this.agentToken = tokens.agent;
  }

  /**
   * @param options `nodeOptions`: of Node, such as `--cpu-prof`; `store`: URL of a database, empty: a file
   * @throws Error with what the process said when it does not start
   */
  static async start(
    directory: string,
    { nodeOptions, store }: { readonly nodeOptions: readonly string[]; readonly store: string },
  ): Promise<ControllerProcess> {
    const args = [...nodeOptions, program, "--listen", "127.0.0.1:0", "--state", directory];
    const env = { ...process.env, MILLPOND_STORE: store };
    const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "pipe"], env });
    const said: string[] = [];
    for await (const line of createInterface({ input: child.stderr })) {
      said.push(line);
      const url = /listens at (http:\/\/[^"]+)"/.exec(line)?.[1];
      if (url !== undefined) {
        child.stderr.resume();
        const [user, agent] = await Promise.all(
          ["user", "agent"].map(async (name) => await readFile(join(directory, `${name}.token`), "utf8")),
        );
        return new ControllerProcess(child, url, { user: (user ?? "").trim(), agent: (agent ?? "").trim() });
      }
    }
    throw new Error(`the controller did not start:\n${said.join("\n")}`);
  }

  async end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.kill(signal);
    await exited;
  }

  /** Processor time since its start, seconds. */
  async cpuSeconds(): Promise<number> {
    const stat = await readFile(`/proc/${this.#child.pid}/stat`, "utf8");
    // The name before may hold anything, so the fields are counted from behind it: the 14th and the 15th.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) * tickSeconds;
  }

  async residentBytes(): Promise<number> {
    const status = await readFile(`/proc/${this.#child.pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
  }
}
