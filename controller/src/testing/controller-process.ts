// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const mainPath = fileURLToPath(new URL("../main.ts", import.meta.url));

export interface ControllerProcessOptions {
  /** Default: a free port. */
  readonly listen?: string;
  /** URL of a database; default: a file. */
  readonly store?: string;
  /** How far its wall clock is ahead of this machine's. Default 0. */
  readonly clockAheadSeconds?: number;
  /** A token beside the one in the directory. */
  readonly userToken?: string;
  readonly agentToken?: string;
}

/** A module that sets the wall clock of the process that loads it. */
function shiftedClock(seconds: number): string {
  const source = `const now = Date.now; Date.now = () => now() + ${seconds * 1000};`;
  return `data:text/javascript,${encodeURIComponent(source)}`;
}

/** The controller as a process of its own. */
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
  static async start(directory: string, options: ControllerProcessOptions = {}): Promise<ControllerProcess> {
    const {
      listen = "127.0.0.1:0",
      store = "",
      clockAheadSeconds = 0,
      userToken = "",
      agentToken = "",
    } = options;
    const clock = clockAheadSeconds === 0 ? [] : ["--import", shiftedClock(clockAheadSeconds)];
    const args = [...clock, mainPath, "--listen", listen, "--state", directory];
    const child = spawn(process.execPath, args, {
      stdio: ["ignore", "ignore", "pipe"],
      env: {
        ...process.env,
        MILLPOND_STORE: store,
        MILLPOND_USER_TOKENS: userToken,
        MILLPOND_AGENT_TOKENS: agentToken,
      },
    });
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

  /** Stops it as it is, or lets it go on. */
  signal(signal: "SIGSTOP" | "SIGCONT"): void {
    this.#child.kill(signal);
  }

  /** Ends it. @returns The exit code, or the signal that ended it. */
  async end(signal: "SIGKILL" | "SIGTERM"): Promise<number | string | null> {
    this.#child.kill(signal);
    await this.#exited;
    return this.#child.exitCode ?? this.#child.signalCode;
  }
}
