// SPDX-License-Identifier: Apache-2.0

import { countOf, formatBytes } from "@millpond/api";
import { type Column, layOut } from "../output/table.ts";
import type { CallSummary, CopySummary, Gap, LaunchSummary, Summary, ThreadSummary } from "./summary.ts";

/** Limit of lists that may have thousands of entries. */
const mostRows = 20;
const mostOfName = 100;

/** Formats microseconds for display: `212 ns`, `3.1 µs`, `52.7 ms`, `1.2 s`. */
function formatMicroseconds(time: number): string {
  if (time < 1) return `${Math.round(time * 1000)} ns`;
  if (time < 1000) return `${time.toFixed(1)} µs`;
  return time < 1e6 ? `${(time / 1000).toFixed(1)} ms` : `${(time / 1e6).toFixed(1)} s`;
}

const time = <T>(title: string, of: (item: T) => number): Column<T> => ({
  title,
  cell: (item) => formatMicroseconds(of(item)),
  align: "right",
});
const count = <T>(title: string, of: (item: T) => number): Column<T> => ({
  title,
  cell: (item) => String(of(item)),
  align: "right",
});

const threadColumns: readonly Column<ThreadSummary>[] = [
  { title: "THREAD", cell: ({ process, thread }) => `${process}/${thread}` },
  count("CALLS", (each) => each.calls),
  time("SPAN", (each) => each.span),
  time("IN CALLS", (each) => each.inCalls),
  time("WAITING", (each) => each.inWaits),
  time("IN PROGRAM", (each) => each.span - each.inCalls),
];

const callColumns: readonly Column<CallSummary>[] = [
  { title: "CALL", cell: ({ name }) => name },
  count("COUNT", (each) => each.count),
  time("TOTAL", (each) => each.total),
  time("MEAN", (each) => each.mean),
  time("P50", (each) => each.p50),
  time("P99", (each) => each.p99),
  time("MAX", (each) => each.max),
  count("WAITS", (each) => each.waits),
  count("ERRORS", (each) => each.errors),
];

const copyColumns: readonly Column<CopySummary>[] = [
  { title: "COPIES", cell: ({ from, to }) => `${from} to ${to}` },
  count("COUNT", (each) => each.count),
  { title: "BYTES", cell: ({ bytes }) => exactOrBytes(bytes), align: "right" },
  time("IN CALLS", (each) => each.total),
];

const launchColumns: readonly Column<LaunchSummary>[] = [
  { title: "KERNEL", cell: ({ kernel, readable }) => shortened(readable ?? kernel) },
  count("LAUNCHES", (each) => each.count),
  time("IN CALLS", (each) => each.total),
];

const gapColumns: readonly Column<Gap>[] = [
  { title: "LONGEST IN PROGRAM", cell: (each) => formatMicroseconds(each.time) },
  { title: "THREAD", cell: ({ process, thread }) => `${process}/${thread}` },
  { title: "AFTER", cell: ({ after }) => after },
  { title: "BEFORE", cell: ({ before }) => before },
  { title: "LINE", cell: ({ file, line }) => `${file}:${line}` },
];

/** Names of templates can fill the whole screen. */
function shortened(name: string): string {
  return name.length <= mostOfName ? name : `${name.slice(0, mostOfName - 1)}…`;
}

function exactOrBytes(bytes: number): string {
  return bytes < 1 << 20 ? `${bytes} B` : formatBytes(BigInt(bytes));
}

/** Renders the summary for display: a table for each question, without empty tables. */
export function renderPicture(summary: Summary): string {
  const calls = summary.files.reduce((sum, file) => sum + file.calls, 0);
  const about = summary.processes.map(
    ({ process, program, started, calls: own }) =>
      `process ${process}, ${program}: ${countOf(own, "call")} from ${started}`,
  );
  const parts = [
    about.length > 0 ? about.join("\n") : "no process",
    ...table(threadColumns, summary.threads),
    ...table(callColumns, summary.calls),
    ...table(copyColumns, summary.copies),
    ...table(launchColumns, summary.launches),
    ...table(gapColumns, summary.gaps),
    ...failures(summary),
  ];
  if (calls === 0) parts.push("no calls");
  return `${parts.join("\n\n")}\n`;
}

function table<T>(columns: readonly Column<T>[], rows: readonly T[]): string[] {
  if (rows.length === 0) return [];
  const { lines } = layOut(columns, rows.slice(0, mostRows), { headers: true });
  const more = rows.length > mostRows ? [`… and ${rows.length - mostRows} more: -o json shows all`] : [];
  return [[...lines, ...more].join("\n")];
}

function failures({ failures: known, failedCalls }: Summary): string[] {
  if (failedCalls === 0) return [];
  const shown = known.slice(0, mostRows).map(({ file, line, text }) => `${file}:${line}: ${text}`);
  const more = failedCalls > shown.length ? [`… and ${failedCalls - shown.length} more`] : [];
  const advice = known.some((each) => each.isEarlierFailure)
    ? ["Trace the program with MILLPOND_SYNC=1 to see which call is the cause of those `of an earlier call`."]
    : [];
  return [["FAILED CALLS", ...shown, ...more, ...advice].join("\n")];
}
