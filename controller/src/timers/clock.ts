// SPDX-License-Identifier: Apache-2.0

/** The time source of the controller. */
export interface Clock {
  /** Wall clock, milliseconds since 1970: for records and tickets. It may jump. */
  unixMs(): number;
  /** Milliseconds from an arbitrary start, never going back: for deadlines. */
  monotonicMs(): number;
  /** Calls back once, `delayMs` from now unless cancelled. */
  after(delayMs: number, callback: () => void): CancelTimer;
}

export type CancelTimer = () => void;

export const systemClock: Clock = {
  unixMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after: (delayMs, callback) => {
    // Node turns a delay beyond 31 bits into 1 ms. Callers that are woken early check the clock and wait again.
    const timer = setTimeout(callback, Math.min(delayMs, 2 ** 31 - 1));
    return () => clearTimeout(timer);
  },
};

export function unixSeconds(clock: Clock): number {
  return Math.floor(clock.unixMs() / 1000);
}
