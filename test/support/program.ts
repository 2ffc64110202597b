// SPDX-License-Identifier: Apache-2.0
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";

export interface Result {
  /** Exit status; 128 plus the signal's number if a signal ended it. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running program, with its output so far. */
export class Program {
  readonly finished: Promise<Result>;
  stdout = "";
  stderr = "";
  readonly #child: ChildProcess;

  constructor(child: ChildProcess) {
    this.#child = child;
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.stdout += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.stderr += text;
    });
    this.finished = new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code, signal) => {
        const status = code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
        resolve({ status, stdout: this.stdout, stderr: this.stderr });
      });
    });
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error("the program was not started");
    return this.#child.pid;
  }

  /** Writes to its standard input, which stays open. */
  type(text: string): void {
    this.#child.stdin?.write(text);
  }

  endInput(text = ""): void {
    this.#child.stdin?.end(text);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves when a stream has printed a match; throws when it ends or takes too long before that. */
  async says(stream: "stdout" | "stderr", pattern: RegExp, timeoutMs = 120_000): Promise<void> {
    if (pattern.test(this[stream])) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const fail = (why: string): void =>
      reject(new Error(`${why} without saying ${pattern}\nstdout: ${this.stdout}\nstderr: ${this.stderr}`));
    const timer = setTimeout(() => fail(`${timeoutMs} ms passed`), timeoutMs);
    const look = (): void => {
      if (pattern.test(this[stream])) resolve();
    };
    this.#child[stream]?.on("data", look);
    this.finished.then(() => (pattern.test(this[stream]) ? resolve() : fail("it ended")), reject);
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.#child[stream]?.off("data", look);
    }
  }
}

/** Starts a program with exactly this environment and empty standard input, unless that is piped. */
export function startProgram(
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  input: "ignore" | "pipe" = "ignore",
): Program {
  return new Program(spawn(program, args, { env, stdio: [input, "pipe", "pipe"] }));
}

/** Process id of the program that a `millpond run` started. */
export function childOf(pid: number): number {
  const [child] = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  if (child === undefined || child === "") throw new Error(`process ${pid} has no child`);
  return Number(child);
}
