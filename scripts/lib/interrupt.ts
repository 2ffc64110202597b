// SPDX-License-Identifier: Apache-2.0
// Handles Ctrl-C: running commands are stopped, which makes their callers fail and unwind, so that everything is cleaned up
// on the way out.
import { constants } from "node:os";

const handlers = new Set<() => void>();
let interruption: "SIGINT" | "SIGTERM" | "SIGHUP" | undefined;

/** The signal that interrupted the script; undefined when none did. */
export function interruptedBy(): string | undefined {
  return interruption;
}

/** The exit status of an interrupted script. */
export function interruptedStatus(): number {
  return 128 + (interruption === undefined ? 0 : constants.signals[interruption]);
}

/** Calls `handler` when the script is interrupted; returns a function that unregisters it. */
export function onInterrupt(handler: () => void): () => void {
  handlers.add(handler);
  return () => handlers.delete(handler);
}

/** Installs handlers of SIGINT, SIGTERM and SIGHUP; the first signal counts, further ones are ignored. */
export function takeSignals(): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (interruption !== undefined) return;
      interruption = signal;
      for (const handler of handlers) handler();
    });
  }
}
