// SPDX-License-Identifier: Apache-2.0

import { type Metric, metrics, type Transport } from "./metrics.ts";

/** Summary of the samples of one metric. `p10` and `p90` show the noise: eight of ten samples lie between them. */
export interface Summary {
  readonly median: number;
  readonly p10: number;
  readonly p90: number;
  readonly rounds: number;
}

/** The quantile of the sorted samples, interpolated between neighbours. */
export function quantile(sorted: readonly number[], share: number): number {
  if (sorted.length === 0) throw new Error("no samples");
  const position = share * (sorted.length - 1);
  const below = sorted[Math.floor(position)] ?? Number.NaN;
  const above = sorted[Math.ceil(position)] ?? Number.NaN;
  return below + (above - below) * (position - Math.floor(position));
}

export function summarise(samples: readonly number[]): Summary {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number): number => Number(quantile(sorted, share).toPrecision(4));
  return { median: at(0.5), p10: at(0.1), p90: at(0.9), rounds: samples.length };
}

/** Samples of all metrics of all transports. */
export class Samples {
  readonly #samples = new Map<string, number[]>();

  /** Adds the output of a measuring program: `{"metric": [sample, …], …}`. Throws on anything else. */
  addPrinted(transport: Transport, text: string): void {
    const printed: unknown = JSON.parse(text);
    if (typeof printed !== "object" || printed === null) throw new Error(`no object: ${text}`);
    for (const [name, values] of Object.entries(printed)) {
      const metric = metrics.find((known) => known.name === name);
      if (metric === undefined) throw new Error(`no metric is named ${name}`);
      if (!Array.isArray(values) || !values.every((value) => Number.isFinite(value)))
        throw new Error(`samples of ${name} are no numbers: ${JSON.stringify(values)}`);
      for (const value of values as number[]) this.add(transport, name, value);
    }
  }

  add(transport: Transport, name: string, value: number): void {
    const key = `${transport} ${name}`;
    const known = this.#samples.get(key);
    if (known === undefined) this.#samples.set(key, [value]);
    else known.push(value);
  }

  /** Undefined when the metric was not measured over this transport. */
  summary(transport: Transport, metric: Metric): Summary | undefined {
    const samples = this.#samples.get(`${transport} ${metric.name}`);
    return samples === undefined ? undefined : summarise(samples);
  }
}
