// SPDX-License-Identifier: Apache-2.0

// The generator of Go's standard library (`math/rand`), with which the published runs of the benchmark drew their arrivals:
// the additive lagged Fibonacci generator of Mitchell and Reeds, in which each 64-bit number is the sum of those 607 and 273
// before it. With the same numbers a seed gives the same arrivals, so policies can be compared with the published ones seed
// by seed.

const order = 607;
const lag = 273;
const numberBits = 64;

/** The numbers of `math/rand` for a seed. */
export class GoRandom {
  /** The last 607 numbers; the oldest is at `#oldest`. */
  readonly #numbers: BigUint64Array;
  #oldest = 0;

  /** @param seed a whole number from 1 to 2^31 - 2 */
  constructor(seed: number) {
    const mixing = (mixingNumbers ??= numbersAfter(seededNumbers(1, [20n, 10n, 0n]), mixingSteps));
    this.#numbers = seededNumbers(seed, [40n, 20n, 0n]).map(
      (number, index) => number ^ (mixing[index] ?? 0n),
    );
  }

  /** Uniform in 0 to `count` - 1, for a `count` below 2^31. */
  below(count: number): number {
    const end = 2 ** 31 - (2 ** 31 % count);
    for (;;) {
      const number = Number(BigInt.asUintN(31, this.next() >> 32n));
      if (number < end) {
        return number % count;
      }
    }
  }

  /** In place. */
  shuffle(items: unknown[]): void {
    for (let last = items.length - 1; last > 0; last--) {
      const other = this.#belowByProduct(BigInt(last + 1));
      [items[last], items[other]] = [items[other], items[last]];
    }
  }

  /** The numbers from 0 to `length` - 1 in random order. */
  permutation(length: number): number[] {
    const numbers: number[] = [];
    for (let number = 0; number < length; number++) {
      const index = this.below(number + 1);
      numbers[number] = numbers[index] ?? number;
      numbers[index] = number;
    }
    return numbers;
  }

  /** 64 bits. */
  next(): bigint {
    const at = this.#oldest;
    this.#numbers[at] = (this.#numbers[at] ?? 0n) + (this.#numbers[(at + order - lag) % order] ?? 0n);
    this.#oldest = (at + 1) % order;
    return this.#numbers[at] ?? 0n;
  }

  /** Like `below`, but from the upper half of a product: Go's method for shuffling. */
  #belowByProduct(count: bigint): number {
    const end = 2n ** 32n % count;
    for (;;) {
      const product = BigInt.asUintN(32, this.next() >> 31n) * count;
      if (BigInt.asUintN(32, product) >= end) {
        return Number(product >> 32n);
      }
    }
  }
}

/** The offset, in numbers of seed 1, of the numbers with which every seed is mixed. */
const mixingSteps = 7_800_000_000_000n;
let mixingNumbers: BigUint64Array | undefined;

/** 607 numbers, oldest first, each built from one number of a Lehmer generator per shift. */
function seededNumbers(seed: number, shifts: readonly bigint[]): BigUint64Array {
  let state = BigInt(seed);
  const lehmer = (): bigint => (state = (state * 48_271n) % 0x7fff_ffffn);
  for (let skipped = 0; skipped < 20; skipped++) {
    lehmer();
  }
  const numbers = new BigUint64Array(order);
  for (let index = 0; index < order; index++) {
    // Go fills its ring forwards and reads it backwards, from 334 on.
    numbers[(2 * order - lag - 1 - index) % order] = shifts.reduce(
      (number, shift) => number ^ (lehmer() << shift),
      0n,
    );
  }
  return numbers;
}

/** The 607 numbers of a ring after `steps` steps, each at its position. */
function numbersAfter(numbers: BigUint64Array, steps: bigint): BigUint64Array {
  const sequence = [...numbers];
  for (let index = order; index < 2 * order; index++) {
    sequence.push((sequence[index - order] ?? 0n) + (sequence[index - lag] ?? 0n));
  }
  const weights = powerOfX(steps);
  const moved = new BigUint64Array(order);
  for (let index = 0; index < order; index++) {
    const sum = weights.reduce((total, weight, step) => total + weight * (sequence[index + step] ?? 0n), 0n);
    moved[(index + Number(steps % BigInt(order))) % order] = sum;
  }
  return moved;
}

/**
 * Coefficients, lowest first, of x^exponent modulo x^607 - x^334 - 1 and 2^64: the weights of the first 607 numbers in the
 * one that comes `exponent` numbers after the first.
 */
function powerOfX(exponent: bigint): bigint[] {
  let power = [1n];
  for (const bit of exponent.toString(2)) {
    power = reduced(squared(power));
    if (bit === "1") {
      power = reduced([0n, ...power]);
    }
  }
  return power;
}

function reduced(polynomial: readonly bigint[]): bigint[] {
  const coefficients = [...polynomial];
  for (let degree = coefficients.length - 1; degree >= order; degree--) {
    const coefficient = coefficients.pop() ?? 0n;
    coefficients[degree - lag] = (coefficients[degree - lag] ?? 0n) + coefficient;
    coefficients[degree - order] = (coefficients[degree - order] ?? 0n) + coefficient;
  }
  return coefficients.map((coefficient) => BigInt.asUintN(numberBits, coefficient));
}

/** Squares with a single product of two long integers, in which each coefficient has room for the sum of 607 products. */
function squared(coefficients: readonly bigint[]): bigint[] {
  const digits = (2 * numberBits + 16) / 4;
  const long = BigInt(
    `0x${coefficients
      .map((each) => each.toString(16).padStart(digits, "0"))
      .toReversed()
      .join("")}`,
  );
  const product = (long * long).toString(16);
  const count = 2 * coefficients.length - 1;
  const padded = product.padStart(count * digits, "0");
  return Array.from({ length: count }, (_, degree) => {
    const end = padded.length - degree * digits;
    return BigInt(`0x${padded.slice(end - digits, end)}`);
  });
}
