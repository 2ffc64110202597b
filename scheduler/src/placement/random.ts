// SPDX-License-Identifier: Apache-2.0

/** A seeded generator of whole numbers: the same seed gives the same numbers on every machine. */
export class Random {
  #state: number;

  /** @param seed a whole number */
  constructor(seed: number) {
    this.#state = Math.imul(seed, 0x9e3779b1) >>> 0;
  }

  /** Uniform in 0 to `count` - 1. */
  below(count: number): number {
    return Math.floor((this.#next() / 0x1_0000_0000) * count);
  }

  /** 32 bits from the generator mulberry32. */
  #next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }
}
