// SPDX-License-Identifier: Apache-2.0
// What happens on Ctrl-C: commands that run are told to end, which makes their callers fail and unwind, so that whoever
// has started something stops it on the way out.
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

/** Calls `handler` when the script is interrupted; returns a function that forgets it. */
export function onInterrupt(handler: () => void): () => void {
  handlers.add(handler);
  return () => handlers.delete(handler);
}

/** Takes SIGINT, SIGTERM and SIGHUP; the first counts, further ones change nothing. */
export function takeSignals(): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (interruption !== undefined) return;
      interruption = signal;
      for (const handler of handlers) handler();
    });
  }
}
