// SPDX-License-Identifier: Apache-2.0

// Results of simulations, for spreadsheets, programs and pages.

import { stringify } from "csv-stringify/sync";
import { markdownTable } from "markdown-table";
import type { Curve, Summary } from "./summary.ts";

export interface Results {
  readonly title: string;
  readonly summaries: readonly Summary[];
  readonly curves: readonly Curve[];
}

/** The format of a file, by the extension of its name. */
const renderers = {
  // Loaded on demand: the library takes longer to load than a small simulation runs.
  svg: async ({ curves, title }: Results) => (await import("./plot.ts")).plotSvg(curves, title),
  csv: curvesCsv,
  json: ({ summaries, curves }: Results) => `${JSON.stringify({ summaries, curves }, nullOfNaN, 2)}\n`,
  md: summariesMarkdown,
} as const;

export type ResultFormat = keyof typeof renderers;

export const resultFormats: readonly ResultFormat[] = ["svg", "csv", "json", "md"];

/** The format that the name of a file implies; undefined: none of them. */
export function resultFormatOf(path: string): ResultFormat | undefined {
  return resultFormats.find((format) => path.toLowerCase().endsWith(`.${format}`));
}

export async function renderResults(format: ResultFormat, results: Results): Promise<string> {
  return await renderers[format](results);
}

/** A row for each trace, policy and load. At missing loads no claim arrived. */
function curvesCsv({ curves }: Results): string {
  const rows = curves.flatMap(({ trace, policy, allocation, fragmentation }) =>
    allocation.flatMap((allocated, load) =>
      Number.isFinite(allocated)
        ? [[trace, policy, load, digits(allocated), digits(fragmentation[load])]]
        : [],
    ),
  );
  return stringify(rows, {
    header: true,
    // A spreadsheet would run a trace's name that begins with `=`.
    escape_formulas: true,
    columns: ["trace", "policy", "load_percent", "allocated_percent", "fragmented_percent"],
  });
}

function summariesMarkdown({ summaries, title }: Results): string {
  const titles = [
    "trace",
    "policy",
    "seeds",
    "allocated",
    "deviation",
    "least",
    "fragments at 80 %",
    "at 90 %",
  ];
  const rows = summaries.map(({ trace, policy, seeds, mean, sd, min, fragmentation80, fragmentation90 }) => [
    // A bar within a cell would begin the next one.
    trace.replaceAll("|", "\\|"),
    policy,
    String(seeds),
    mean.toFixed(2),
    sd.toFixed(2),
    min.toFixed(2),
    fragmentation80.toFixed(1),
    fragmentation90.toFixed(1),
  ]);
  return [
    `# ${title}`,
    "",
    "Percent of all GPUs that are allocated when 130 % have been asked for, and of idle GPU that no claim fits when 80 % and",
    "90 % have been.",
    "",
    markdownTable([titles, ...rows], { align: ["l", "l", "r", "r", "r", "r", "r", "r"] }),
    "",
  ].join("\n");
}

function digits(value: number | undefined): string {
  return value === undefined || Number.isNaN(value) ? "" : value.toFixed(3);
}

function nullOfNaN(_: string, value: unknown): unknown {
  return typeof value === "number" && !Number.isFinite(value) ? null : value;
}
