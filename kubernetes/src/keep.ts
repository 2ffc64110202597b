// SPDX-License-Identifier: Apache-2.0

// Keeps a program of a container running. The workers and sessions of an agent that is killed would end with the container:
// the next agent, in the same container, takes them over.

import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";

export interface KeepOptions {
  /** Program and arguments. */
  readonly command: readonly string[];
  /** Asks for the end. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  /** A program that ended sooner after its start was no good start. Default 10,000. */
  readonly goodStartMs?: number;
  /** Before the next start. Default 500. */
  readonly pauseMs?: number;
}

/** Limit of failed starts in a row. After them the container ends, and Kubernetes reports it. */
const maxFailures = 3;

/**
 * Runs a program, and again whenever it has ended without being asked to. Resolves with its exit status (128 and the signal's
 * number where one ended it) when it was asked to end, and when it cannot be started properly.
 */
export async function keepRunning(options: KeepOptions): Promise<number> {
  const { signal, log, goodStartMs = 10_000, pauseMs = 500 } = options;
  let isProven = false;
  let failures = 0;
  for (;;) {
    const startedMs = performance.now();
    const status = await runOnce(options);
    if (signal.aborted) return status;
    if (performance.now() - startedMs >= goodStartMs) {
      isProven = true;
      failures = 0;
    } else {
      failures += 1;
      // A first start that fails has left no workers, and its configuration is probably wrong.
      if (!isProven || failures >= maxFailures) return status;
    }
    log.error({ status }, "the program has ended, and is started again; what it left goes on");
    await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return status;
  }
}

function runOnce({ command, signal, log }: KeepOptions): Promise<number> {
  const [program = "", ...args] = command;
  return new Promise((resolve) => {
    const child: ChildProcess = spawn(program, args, { stdio: "inherit" });
    const stop = (): void => void child.kill("SIGTERM");
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    child.on("error", (error) => {
      log.error({ err: error }, "the program cannot be started");
      if (child.pid === undefined) resolve(127);
    });
    child.on("exit", (code, ending) => {
      signal.removeEventListener("abort", stop);
      resolve(code ?? 128 + (ending === null ? 0 : constants.signals[ending]));
    });
  });
}
