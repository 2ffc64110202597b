// SPDX-License-Identifier: Apache-2.0

// Prices of shares by how they combine on GPUs. If each size were requested as often as in the workload, how many GPUs would
// be needed at least, and what share of them is due to each size? This is the cutting stock problem. Its linear relaxation is
// solved by column generation (Gilmore and Gomory, 1961): the dual prices of the optimum are the effective sizes. A share of
// 0.81 beside which no other share fits costs a whole GPU; one of 0.16 that fills such a gap costs nothing.

import { wholeMilli } from "./free-capacity.ts";
import type { WeightedShape } from "./workload.ts";

export interface SharePrices {
  /** At index r, 0 to 1000: the greatest total value, in GPUs, of shares within r thousandths of a GPU. */
  readonly worth: Float64Array;
  /** The price of a share of the given thousandths, in GPUs. */
  readonly priceOf: (gpuMilli: number) => number;
}

/** Upper bound on generated columns, after which the prices are good enough; two for each size are typical. */
const maxColumns = 2000;
const tolerance = 1e-9;
/**
 * Tolerance, in GPUs: when the best pattern is worth at most this much more than one GPU, the prices are this close to the
 * optimum.
 */
const closeEnough = 1e-4;

/** Prices of the sizes of shares in a workload. Without shares every price is 0. */
export function sharePrices(shapes: readonly WeightedShape[]): SharePrices {
  const demands = new Map<number, number>();
  for (const { shape, weight } of shapes) {
    if (shape.gpus > 0 && shape.gpuMilli < wholeMilli && weight > 0) {
      demands.set(shape.gpuMilli, (demands.get(shape.gpuMilli) ?? 0) + weight * shape.gpus);
    }
  }
  const sizes = [...demands.keys()].sort((a, b) => a - b);
  const prices = solve(
    sizes,
    sizes.map((size) => demands.get(size) ?? 0),
  );
  const { worth } = bestPattern(sizes, prices);
  const bySize = new Map(sizes.map((size, position) => [size, prices[position] ?? 0]));
  return { worth, priceOf: (gpuMilli) => bySize.get(gpuMilli) ?? worth[gpuMilli] ?? 0 };
}

/** The revised simplex method; the inverse of the basis is maintained. */
function solve(sizes: readonly number[], demands: readonly number[]): Float64Array {
  const count = sizes.length;
  const total = demands.reduce((sum, each) => sum + each, 0);
  const inverse = sizes.map((size, row) => {
    const line = new Float64Array(count);
    line[row] = 1 / Math.floor(wholeMilli / size);
    return line;
  });
  // Slightly uneven demands, so that no two rows tie and the method cannot cycle.
  const amounts = Float64Array.from(demands, (demand, row) => {
    const uneven = demand / total + 1e-5 * (1 + ((row * 7919) % 97) / 97);
    return uneven * (inverse[row]?.[row] ?? 0);
  });
  const costs = new Float64Array(count).fill(1);
  const column = new Float64Array(count);

  const pricesNow = (): Float64Array => {
    const prices = new Float64Array(count);
    inverse.forEach((line, row) => {
      const cost = costs[row] as number;
      if (cost !== 0) {
        for (let size = 0; size < count; size++) {
          (prices[size] as number) += cost * (line[size] as number);
        }
      }
    });
    return prices;
  };
  const enter = (cost: number): boolean => {
    const used = [...column.keys()].filter((size) => column[size] !== 0);
    const direction = inverse.map((line) =>
      used.reduce((sum, size) => sum + (line[size] as number) * (column[size] as number), 0),
    );
    let leaving = -1;
    let least = Number.POSITIVE_INFINITY;
    direction.forEach((each, row) => {
      if (each > tolerance && (amounts[row] as number) / each < least) {
        least = (amounts[row] as number) / each;
        leaving = row;
      }
    });
    const pivotLine = inverse[leaving];
    if (pivotLine === undefined) {
      return false;
    }
    const pivot = direction[leaving] as number;
    pivotLine.forEach((each, size) => {
      pivotLine[size] = each / pivot;
    });
    (amounts[leaving] as number) /= pivot;
    costs[leaving] = cost;
    inverse.forEach((line, row) => {
      const factor = direction[row] as number;
      if (row !== leaving && factor !== 0) {
        for (let size = 0; size < count; size++) {
          (line[size] as number) -= factor * (pivotLine[size] as number);
        }
        (amounts[row] as number) -= factor * (amounts[leaving] as number);
      }
    });
    return true;
  };

  let prices = pricesNow();
  for (let columns = 0; columns < maxColumns; columns++) {
    // Demand may be exceeded: the surplus of a size enters the basis.
    const unwanted = prices.findIndex((price) => price < -tolerance);
    if (unwanted >= 0) {
      column.fill(0);
      column[unwanted] = -1;
      if (!enter(0)) {
        break;
      }
    } else {
      const pattern = bestPattern(sizes, prices);
      if ((pattern.worth[wholeMilli] as number) <= 1 + closeEnough) {
        break;
      }
      column.fill(0);
      pattern.take((position) => {
        (column[position] as number) += 1;
      });
      if (!enter(1)) {
        break;
      }
    }
    prices = pricesNow();
  }
  const positive = prices.map((price) => Math.max(0, price));
  const most = bestPattern(sizes, positive).worth[wholeMilli] as number;
  return most > 0 ? positive.map((price) => price / most) : positive;
}

interface Pattern {
  readonly worth: Float64Array;
  /** Calls back for each share of the best pattern for a whole GPU. */
  readonly take: (each: (position: number) => void) => void;
}

/** Solves the knapsack problem for every capacity up to a whole GPU. */
function bestPattern(sizes: readonly number[], prices: ArrayLike<number>): Pattern {
  // In steps of the greatest common divisor of the sizes, because values do not change between them.
  const step = sizes.reduce((divisor, size) => commonDivisor(divisor, size), wholeMilli);
  const worth = new Float64Array(wholeMilli + 1);
  const choice = new Int32Array(wholeMilli + 1).fill(-1);
  for (let room = step; room <= wholeMilli; room += step) {
    let best = worth[room - step] as number;
    for (let position = 0; position < sizes.length; position++) {
      const size = sizes[position] as number;
      if (size > room) {
        break;
      }
      const filled = (worth[room - size] as number) + (prices[position] as number);
      if (filled > best + 1e-12) {
        best = filled;
        choice[room] = position;
      }
    }
    worth.fill(best, room, Math.min(room + step, wholeMilli + 1));
  }
  return {
    worth,
    take: (each) => {
      for (let room = wholeMilli; room > 0; ) {
        const position = choice[room] as number;
        if (position < 0) {
          room -= step;
        } else {
          each(position);
          room -= sizes[position] as number;
        }
      }
    },
  };
}

function commonDivisor(a: number, b: number): number {
  return b === 0 ? a : commonDivisor(b, a % b);
}
