// SPDX-License-Identifier: Apache-2.0
// A command that runs beside the script until the script stops it.
import { type ChildProcess, spawn } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { ScriptError } from "./command.ts";
import { onInterrupt } from "./interrupt.ts";

interface BackgroundOptions {
  cwd: string;
  env: NodeJS.ProcessEnv;
  /** Called for every line of standard output and standard error. */
  onLine?: (line: string) => void;
}

/** How long a command may take to end after SIGINT before it is killed, in milliseconds. */
const stopTimeoutMs = 20_000;

export class Background implements AsyncDisposable {
  /** The exit status; 128 plus the signal's number if a signal ended it. */
  readonly ended: Promise<number>;
  readonly #title: string;
  readonly #child: ChildProcess;
  readonly #listeners = new Set<(line: string) => void>();
  readonly #lines: string[] = [];

  /** Starts a command in a process group of its own, so that Ctrl-C reaches only the script. */
  static start(command: string, args: string[], options: BackgroundOptions): Background {
    return new Background(command, args, options);
  }

  private constructor(command: string, args: string[], options: BackgroundOptions) {
    this.#title = [command.slice(command.lastIndexOf("/") + 1), ...args].join(" ");
    this.#child = spawn(command, args, {
      cwd: options.cwd,
      env: options.env,
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    this.ended = new Promise((resolve, reject) => {
      this.#child.on("error", (error) => reject(new ScriptError(`cannot run ${command}: ${error.message}`)));
      this.#child.on("close", (code, signal) => resolve(code ?? (signal === "SIGKILL" ? 137 : 143)));
    });
    const forget = onInterrupt(() => this.#signal("SIGINT", "alone"));
    this.#child.on("close", forget);
    // A caller that awaits it sees the failure; until then the rejection counts as handled.
    this.ended.catch(() => {});
    if (options.onLine) this.#listeners.add(options.onLine);
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      let rest = "";
      stream?.setEncoding("utf8").on("data", (text: string) => {
        const lines = (rest + text).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) this.#take(line);
      });
    }
  }

  #take(line: string): void {
    this.#lines.push(line);
    for (const listener of this.#listeners) listener(line);
  }

  /** Its whole output, by line. */
  get output(): string {
    return this.#lines.join("\n");
  }

  /**
   * Resolves at the first line of output that matches; throws a ScriptError when the command has ended or the time is over
   * before that.
   */
  async waitForLine(pattern: RegExp, timeoutMs: number): Promise<void> {
    if (this.#lines.some((line) => pattern.test(line))) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const fail = (why: string): void => reject(new ScriptError(`${this.#title} ${why}:\n${this.output}`));
    const listener = (line: string): void => {
      if (pattern.test(line)) resolve();
    };
    const timer = setTimeout(() => fail(`did not say ${pattern} within ${timeoutMs / 1000} s`), timeoutMs);
    this.#listeners.add(listener);
    this.ended.then((status) => fail(`ended with status ${status}`), reject);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.#listeners.delete(listener);
    }
  }

  /** Sends SIGINT, as Ctrl-C does, and waits for the end; kills its process group after a timeout. */
  async stop(): Promise<number> {
    this.#signal("SIGINT", "alone");
    const timer = setTimeout(() => this.#signal("SIGKILL", "group"), stopTimeoutMs);
    try {
      return await this.ended;
    } finally {
      clearTimeout(timer);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #signal(signal: NodeJS.Signals, whom: "alone" | "group"): void {
    const { pid } = this.#child;
    if (pid === undefined || this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    try {
      process.kill(whom === "group" ? -pid : pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  }
}

/** Processes whose command line contains `text`, except this one. */
export async function processesWith(text: string): Promise<{ pid: number; command: string }[]> {
  const found: { pid: number; command: string }[] = [];
  for (const entry of await readdir("/proc")) {
    if (!/^\d+$/.test(entry) || Number(entry) === process.pid) continue;
    try {
      const command = (await readFile(`/proc/${entry}/cmdline`, "utf8")).replaceAll("\0", " ").trim();
      if (command.includes(text)) found.push({ pid: Number(entry), command });
    } catch (error) {
      // It has ended since the list was read, or belongs to another user.
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" && code !== "ESRCH" && code !== "EACCES") throw error;
    }
  }
  return found;
}
