// SPDX-License-Identifier: Apache-2.0

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";

/** How long the end of the witness may take to arrive here on a busy machine. */
const patienceMs = 1000;

/** The fields of /proc/PID/stat after the command's name: state, parent, group, session, terminal, foreground group. */
function statFields(): readonly string[] {
  const stat = readFileSync("/proc/self/stat", "utf8");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** Whether the terminal sends its signals, for keys and when it hangs up, to this process's group. */
export function isInForeground(): boolean {
  const fields = statFields();
  return fields[2] === fields[5];
}

/** Whether this process has a controlling terminal. */
export function hasTerminal(): boolean {
  return statFields()[4] !== "0";
}

/**
 * Tells a signal that the terminal sent to the whole process group from one that was sent to this process alone: a process
 * of the same group that does nothing but wait ends by the former only. It ends with this process.
 */
export class GroupWitness implements Disposable {
  #process: ChildProcess = start();

  /** Whether the whole group received a signal that this process has just received. */
  async saw(signal: NodeJS.Signals): Promise<boolean> {
    const witness = this.#process;
    const seen = await endOf(witness);
    if (seen === undefined) return false;
    if (witness === this.#process) this.#process = start();
    // A witness that could not be started, or ended otherwise, says nothing: the terminal is the usual sender.
    return seen === signal || seen === "unknown";
  }

  [Symbol.dispose](): void {
    this.#process.kill("SIGKILL");
  }
}

/** The signal that ended a process; undefined: it has not ended in time. */
function endOf(child: ChildProcess): Promise<NodeJS.Signals | "unknown" | undefined> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) {
    return Promise.resolve(child.signalCode ?? "unknown");
  }
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      child.off("exit", ended);
      resolve(undefined);
    }, patienceMs);
    const ended = (_: number | null, signal: NodeJS.Signals | null): void => {
      clearTimeout(timer);
      resolve(signal ?? "unknown");
    };
    child.once("exit", ended);
  });
}

/** Starts a process without a core file that ends with its standard input, so also when this process is killed. */
function start(): ChildProcess {
  const child = spawn("sh", ["-c", "ulimit -c 0; exec cat"], { stdio: ["pipe", "ignore", "ignore"] });
  child.on("error", () => undefined);
  child.unref();
  return child;
}
