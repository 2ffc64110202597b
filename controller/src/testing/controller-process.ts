// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const mainPath = fileURLToPath(new URL("../main.ts", import.meta.url));

/** The controller as a process of its own, on a free port. */
export class ControllerProcess {
  readonly url: string;
  readonly userToken: string;
  readonly agentToken: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;

  private constructor(child: ChildProcess, exited: Promise<unknown>, url: string, directory: string) {
    this.#child = child;
    this.#exited = exited;
    this.url = url;
    this.userToken = readFileSync(join(directory, "user.token"), "utf8").trim();
    this.agentToken = readFileSync(join(directory, "agent.token"), "utf8").trim();
  }

  /** @throws Error with what the process said when it does not start. */
  static async start(directory: string): Promise<ControllerProcess> {
    const args = [mainPath, "--listen", "127.0.0.1:0", "--state", directory];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "ignore", "pipe"] });
    const exited = once(child, "exit");
    const said: string[] = [];
    for await (const line of createInterface({ input: child.stderr })) {
      said.push(line);
      const url = /listens at (http:\/\/[^"]+)"/.exec(line)?.[1];
      if (url !== undefined) {
        child.stderr.resume();
        return new ControllerProcess(child, exited, url, directory);
      }
    }
    throw new Error(`the controller did not start: ${said.join("\n")}`);
  }

  /** Ends it. @returns The exit code, or the signal that ended it. */
  async end(signal: "SIGKILL" | "SIGTERM"): Promise<number | string | null> {
    this.#child.kill(signal);
    await this.#exited;
    return this.#child.exitCode ?? this.#child.signalCode;
  }
}
