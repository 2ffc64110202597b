// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants as fileConstants, statSync } from "node:fs";
import { constants } from "node:os";
import { delimiter, join } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { exitStatus } from "../command-table/command-table.ts";
import { ExitError } from "../command-line/errors.ts";
import { GroupWitness, hasTerminal, isInForeground } from "./group-witness.ts";

/**
 * Finds a program as a shell does: by its path when its name has a slash, else in PATH.
 *
 * @throws ExitError with 127 when there is none, with 126 when it cannot be run
 */
export function findProgram(name: string, environment: NodeJS.ProcessEnv): string {
  const candidates = name.includes("/")
    ? [name]
    : (environment["PATH"] ?? "/usr/bin:/bin")
        .split(delimiter)
        .map((directory) => join(directory === "" ? "." : directory, name));
  let blocked: string | undefined;
  for (const candidate of candidates) {
    const kind = statSync(candidate, { throwIfNoEntry: false });
    if (kind === undefined || (kind.isDirectory() && !name.includes("/"))) continue;
    if (!kind.isDirectory() && isExecutable(candidate)) return candidate;
    blocked ??= candidate;
  }
  if (blocked !== undefined) {
    throw new ExitError(
      exitStatus.cannotRun,
      millpondError("MILLPOND_E_PROGRAM", `${quote(blocked)} cannot be run: it is not an executable file`),
    );
  }
  const where = name.includes("/") ? "" : " in PATH";
  throw new ExitError(
    exitStatus.notFound,
    millpondError("MILLPOND_E_PROGRAM", `the program ${quote(name)} is not found${where}`),
  );
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, fileConstants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Signals that are forwarded to the program. Stop and continue signals reach it through the terminal's process group. */
const relayed = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"] as const;

/** Signals that a terminal sends to all processes of its foreground group: for keys, and when it hangs up. */
const ofTerminals: ReadonlySet<NodeJS.Signals> = new Set(["SIGINT", "SIGQUIT", "SIGHUP"]);

/**
 * Handles the signals that would end this process: before the program runs they abort the wait; afterwards they are forwarded
 * to the program.
 */
export class SignalRelay implements Disposable {
  readonly #cancel = new AbortController();
  readonly #handlers = new Map<NodeJS.Signals, () => void>();
  #received: NodeJS.Signals | undefined;
  #child: ChildProcess | undefined;
  #witness: GroupWitness | undefined;

  constructor() {
    for (const signal of relayed) {
      const handler = (): void => this.#receive(signal);
      this.#handlers.set(signal, handler);
      process.on(signal, handler);
    }
  }

  /** Aborted by the first signal that arrives before the program has started. */
  get cancelled(): AbortSignal {
    return this.#cancel.signal;
  }

  /** Exit status after a signal that arrived before the program has started. */
  get cancelStatus(): number {
    return this.#received === undefined ? exitStatus.failed : statusOfSignal(this.#received);
  }

  passTo(child: ChildProcess): void {
    this.#child = child;
    if (hasTerminal()) this.#witness ??= new GroupWitness();
  }

  /** Sends the program a signal, if there is one. */
  send(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** The program has ended, so signals act on this process again. */
  letGo(): void {
    this.#child = undefined;
  }

  [Symbol.dispose](): void {
    for (const [signal, handler] of this.#handlers) process.off(signal, handler);
    this.#witness?.[Symbol.dispose]();
  }

  #receive(signal: NodeJS.Signals): void {
    if (this.#child === undefined) {
      // These signals are meaningful only for a running program.
      if (signal === "SIGUSR1" || signal === "SIGUSR2") return;
      this.#received ??= signal;
      this.#cancel.abort();
    } else if (this.#witness !== undefined && ofTerminals.has(signal) && isInForeground()) {
      void this.#passUnlessSeen(signal, this.#witness, this.#child);
    } else {
      this.#child.kill(signal);
    }
  }

  /** Forwards a signal unless the terminal sent it: then the program, which is in the same group, received it too. */
  async #passUnlessSeen(signal: NodeJS.Signals, witness: GroupWitness, child: ChildProcess): Promise<void> {
    if (!(await witness.saw(signal))) child.kill(signal);
  }
}

/** 128 plus the signal's number, as in shells. */
export function statusOfSignal(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/**
 * Runs a program on this process's own standard streams, in its process group. Resolves with its exit status.
 *
 * @throws ExitError with 126 when the system refuses to run it
 */
export function runProgram(
  path: string,
  args: readonly string[],
  options: {
    readonly name: string;
    readonly environment: NodeJS.ProcessEnv;
    readonly signals: SignalRelay;
    /** Whether the program inherits this process's standard input; otherwise it has none. */
    readonly hasInput: boolean;
  },
): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(path, args, {
      stdio: [options.hasInput ? "inherit" : "ignore", "inherit", "inherit"],
      env: options.environment,
      argv0: options.name,
    });
    options.signals.passTo(child);
    child.on("error", (cause) => {
      reject(
        new ExitError(
          exitStatus.cannotRun,
          millpondError("MILLPOND_E_PROGRAM", `${quote(path)} cannot be run: ${cause.message}`, { cause }),
        ),
      );
    });
    child.on("exit", (code, signal) => {
      resolve(signal === null ? (code ?? exitStatus.failed) : statusOfSignal(signal));
    });
  });
}
