// SPDX-License-Identifier: Apache-2.0

// Waits that time out with a reason: the test reports its last observation, instead of running into the runner's limit.

import { setTimeout as delay } from "node:timers/promises";

/** Half of the limit of a test: far more than any of these waits takes on a busy machine. */
const limitMs = 120_000;
const pollMs = 20;

/**
 * Waits for a promise, not longer than `timeoutMs`.
 *
 * @param describe Describes the awaited state and the last observation, for the error after a timeout.
 */
export async function within<T>(
  promise: Promise<T>,
  describe: () => string,
  timeoutMs: number = limitMs,
): Promise<T> {
  const over = new AbortController();
  const end = delay(timeoutMs, undefined, { signal: over.signal }).then(() => {
    throw new Error(`not within ${timeoutMs} ms: ${describe()}`);
  });
  try {
    return await Promise.race([promise, end]);
  } finally {
    over.abort();
    // When aborted, it rejects and cancels its wait.
    end.catch(() => undefined);
  }
}

/** Asks again while the answer is undefined, not longer than `timeoutMs`. */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined>,
  timeoutMs: number = limitMs,
): Promise<T> {
  const deadlineMs = performance.now() + timeoutMs;
  for (let asked = 1; ; asked += 1) {
    const answer = await within(ask(), () => `${what}: question ${asked} is not answered`, timeoutMs);
    if (answer !== undefined) {
      return answer;
    }
    if (performance.now() > deadlineMs) {
      throw new Error(`not within ${timeoutMs} ms: ${what}, asked for ${asked} times`);
    }
    await delay(pollMs);
  }
}
