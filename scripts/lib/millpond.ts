// SPDX-License-Identifier: Apache-2.0
// A pool on this host and the `millpond` command that uses it, isolated from the user's own settings.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Background, processesWith } from "./background.ts";
import { type CommandResult, must, run, ScriptError } from "./command.ts";

/** How `millpond` is called. */
export interface Millpond {
  /** Program and first arguments. */
  command: readonly [string, ...string[]];
  cwd: string;
  env: NodeJS.ProcessEnv;
}

const readyTimeoutMs = 60_000;
/** How long processes of a pool may outlive `millpond up`. */
const graceMs = 5000;

export class TrialPool implements AsyncDisposable {
  readonly #millpond: Millpond;
  readonly #directory: string;
  readonly #up: Background;

  private constructor(millpond: Millpond, directory: string, up: Background) {
    this.#millpond = millpond;
    this.#directory = directory;
    this.#up = up;
  }

  /** Runs `millpond up` with these arguments on a temporary state directory, and waits until the pool is ready. */
  static async start(how: Millpond, args: string[]): Promise<TrialPool> {
    const directory = await mkdtemp(join(tmpdir(), "millpond-trial-"));
    // The user's own settings must not redirect the command, and this pool must not change the user's context file.
    const settings = Object.entries(how.env).filter(([name]) => !name.startsWith("MILLPOND_"));
    const env = { ...Object.fromEntries(settings), MILLPOND_CONFIG: join(directory, "config.json") };
    const [program, ...first] = how.command;
    const up = Background.start(
      program,
      [...first, "up", "--state", join(directory, "state"), "--listen", "127.0.0.1:0", ...args],
      { cwd: how.cwd, env },
    );
    const pool = new TrialPool({ ...how, env }, directory, up);
    try {
      await up.waitForLine(/the pool is ready/, readyTimeoutMs);
      return pool;
    } catch (error) {
      await pool.stop();
      throw error;
    }
  }

  /** The output of `millpond up`. */
  get said(): string {
    return this.#up.output;
  }

  /** Runs `millpond` to its end, whatever its exit status. */
  run(args: string[]): Promise<CommandResult> {
    const [program, ...first] = this.#millpond.command;
    return run(program, [...first, ...args], this.#millpond);
  }

  /** Runs `millpond`, which must succeed; returns its output. */
  must(args: string[]): Promise<string> {
    const [program, ...first] = this.#millpond.command;
    return must(program, [...first, ...args], this.#millpond);
  }

  /** Starts `millpond` in the background. */
  start(args: string[], onLine: (line: string) => void): Background {
    const [program, ...first] = this.#millpond.command;
    return Background.start(program, [...first, ...args], { ...this.#millpond, onLine });
  }

  /** Stops the pool and removes its files. If processes are left over, kills them and throws a ScriptError. */
  async stop(): Promise<void> {
    const status = await this.#up.stop();
    const left = await this.#leftovers();
    for (const { pid } of left) process.kill(pid, "SIGKILL");
    await rm(this.#directory, { recursive: true, force: true });
    if (left.length > 0) {
      const commands = left.map(({ pid, command }) => `${pid} ${command}`);
      throw new ScriptError(`millpond up left processes behind, which were killed:\n${commands.join("\n")}`);
    }
    if (status !== 0) throw new ScriptError(`millpond up ended with status ${status}:\n${this.said}`);
  }

  /** Processes of the pool that still run after a grace period for those that are ending. */
  async #leftovers(): Promise<{ pid: number; command: string }[]> {
    for (let waited = 0; ; waited += 100) {
      const left = await processesWith(this.#directory);
      if (left.length === 0 || waited >= graceMs) return left;
      await sleep(100);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}
