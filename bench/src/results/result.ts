// SPDX-License-Identifier: Apache-2.0

import type { Machine } from "./machine.ts";
import { type Bar, isMet, type Metric, metrics, type Transport, transports } from "./metrics.ts";
import type { Samples, Summary } from "./samples.ts";

/** One metric in a result file. `bar` is "<= 0.5" or ">= 3"; both are `null` if there is none. */
export interface Measured extends Summary {
  readonly unit: Metric["unit"];
  readonly bar: string | null;
  readonly met: boolean | null;
}

/** A result file: one machine at one time, all transports in turns. */
export interface Result extends Machine {
  /** ISO 8601, to the second. */
  readonly date: string;
  readonly results: readonly {
    readonly transport: Transport;
    readonly metrics: Readonly<Record<string, Measured>>;
  }[];
}

function barText(bar: Bar): string {
  return `${bar.kind === "atMost" ? "<=" : ">="} ${bar.value}`;
}

function measured(metric: Metric, transport: Transport, summary: Summary): Measured {
  const bar = metric.bars?.[transport];
  return {
    ...summary,
    unit: metric.unit,
    bar: bar === undefined ? null : barText(bar),
    met: bar === undefined ? null : isMet(bar, summary.median),
  };
}

/** Summarizes samples for a result file; transports and metrics without samples are left out. */
export function makeResult(machine: Machine, date: Date, samples: Samples): Result {
  const results = transports.map((transport) => ({
    transport,
    metrics: Object.fromEntries(
      metrics.flatMap((metric) => {
        const summary = samples.summary(transport, metric);
        return summary === undefined ? [] : [[metric.name, measured(metric, transport, summary)] as const];
      }),
    ),
  }));
  return {
    ...machine,
    date: `${date.toISOString().slice(0, 19)}Z`,
    results: results.filter((result) => Object.keys(result.metrics).length > 0),
  };
}

function number(value: number): string {
  if (value >= 1000) return Math.round(value).toLocaleString("en");
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

function cell(figure: Measured | undefined): string {
  if (figure === undefined) return "-";
  const spread = figure.rounds > 1 ? ` [${number(figure.p10)} ${number(figure.p90)}]` : "";
  const mark = figure.met === null ? "" : figure.met ? " ✓" : " ✗";
  return `${number(figure.median)}${spread}${mark}`;
}

/** The result as a table: medians, the 10th and 90th percentiles in brackets, and whether targets are met. */
export function formatTable(result: Result): string {
  const head = ["", "unit", ...result.results.map(({ transport }) => transport), "bars"];
  const rows = metrics.flatMap((metric) => {
    const figures = result.results.map((each) => each.metrics[metric.name]);
    if (figures.every((figure) => figure === undefined)) return [];
    const bars = Object.entries(metric.bars ?? {}).map(([transport, bar]) => `${transport} ${barText(bar)}`);
    return [[metric.title, metric.unit, ...figures.map(cell), bars.join(", ")]];
  });
  const lines = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const lastLeft = 1;
  return lines
    .map((line) =>
      line
        .map((text, column) => {
          const width = widths[column] ?? 0;
          const isFigure = column > lastLeft && column < head.length - 1;
          return isFigure ? text.padStart(width) : text.padEnd(width);
        })
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
