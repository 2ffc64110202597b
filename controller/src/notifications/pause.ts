// SPDX-License-Identifier: Apache-2.0

import type { Clock } from "../timers/clock.ts";

/** Waits for the given time, or until the signal aborts. */
export async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const cancel = clock.after(ms, resolve);
  const abort = (): void => resolve();
  signal.addEventListener("abort", abort, { once: true });
  await promise;
  signal.removeEventListener("abort", abort);
  cancel();
}
