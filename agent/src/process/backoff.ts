// SPDX-License-Identifier: Apache-2.0

/** Exponential back-off with a ceiling: how long to wait after each failure in a row. */
export class Backoff {
  readonly #firstMs: number;
  readonly #ceilingMs: number;
  #failures = 0;

  constructor(options: { readonly firstMs: number; readonly ceilingMs: number }) {
    this.#firstMs = options.firstMs;
    this.#ceilingMs = options.ceilingMs;
  }

  /** Failures since the last success. */
  get failures(): number {
    return this.#failures;
  }

  /** Notes a failure and returns the milliseconds to wait before the next attempt. */
  fail(): number {
    const delayMs = Math.min(this.#firstMs * 2 ** this.#failures, this.#ceilingMs);
    this.#failures += 1;
    return delayMs;
  }

  succeed(): void {
    this.#failures = 0;
  }
}
