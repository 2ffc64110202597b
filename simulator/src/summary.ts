// SPDX-License-Identifier: Apache-2.0

import { lastLoad, type Policy, type RunResult } from "./run.ts";

/** One policy on one trace, over all seeds. Percentages. */
export interface Summary {
  readonly trace: string;
  readonly policy: Policy;
  readonly pooled: boolean;
  readonly seeds: number;
  /** Allocated GPUs in percent when 130 % of the pool has been requested: mean, standard deviation, minimum. */
  readonly mean: number;
  readonly sd: number;
  readonly min: number;
  /** Mean share of idle capacity that is fragmented, when 80 % and 90 % has been requested. */
  readonly fragmentation80: number;
  readonly fragmentation90: number;
  readonly decisionsPerSecond: number;
}

/** Means over the seeds, by load in percent from 0. */
export interface Curve {
  readonly trace: string;
  readonly policy: Policy;
  readonly allocation: readonly number[];
  readonly fragmentation: readonly number[];
}

export function summarize(
  about: Pick<Summary, "trace" | "policy" | "pooled">,
  results: readonly RunResult[],
): Summary {
  const finals = results.map(({ allocation }) => valueAt(allocation, lastLoad));
  const mean = meanOf(finals);
  const fragmentationAt = (load: number): number =>
    meanOf(results.map(({ fragmentation }) => valueAt(fragmentation, load)));
  return {
    ...about,
    seeds: results.length,
    mean: round(mean),
    sd: round(deviationOf(finals, mean)),
    min: round(Math.min(...finals)),
    fragmentation80: round(fragmentationAt(80)),
    fragmentation90: round(fragmentationAt(90)),
    decisionsPerSecond: Math.round(
      sumOf(results.map(({ decisions }) => decisions)) / sumOf(results.map(({ seconds }) => seconds)),
    ),
  };
}

export function curveOf(about: Pick<Curve, "trace" | "policy">, results: readonly RunResult[]): Curve {
  const means = (of: (result: RunResult) => Float64Array): number[] =>
    Array.from({ length: lastLoad + 1 }, (_, load) =>
      meanOf(results.map((result) => of(result)[load] ?? Number.NaN).filter((each) => !Number.isNaN(each))),
    );
  return {
    ...about,
    allocation: means(({ allocation }) => allocation),
    fragmentation: means(({ fragmentation }) => fragmentation),
  };
}

/**
 * The value at the load, or at the last load before it at which a claim arrived: in a small pool one claim is several
 * percent.
 */
function valueAt(values: Float64Array, load: number): number {
  for (let at = load; at >= 0; at--) {
    const value = values[at] as number;
    if (!Number.isNaN(value)) {
      return value;
    }
  }
  return 0;
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, each) => sum + each, 0);
}

function meanOf(values: readonly number[]): number {
  return sumOf(values) / values.length;
}

/** Standard deviation of a sample; 0 for a single value. */
function deviationOf(values: readonly number[], mean: number): number {
  const squares = sumOf(values.map((each) => (each - mean) ** 2));
  return values.length < 2 ? 0 : Math.sqrt(squares / (values.length - 1));
}

/** Rounds to thousandths of a percent. */
function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}
