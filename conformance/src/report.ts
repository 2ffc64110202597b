// SPDX-License-Identifier: Apache-2.0

import type { Form } from "./catalogue.ts";
import type { Run } from "./compare.ts";
import { isFailure, type Outcome, type Runs, type Verdict, type Way, ways } from "./verdict.ts";

/** A program, its runs and the verdict. */
export interface Finding extends Verdict {
  readonly name: string;
  readonly runs: Runs;
}

/** The format of --json. Times are milliseconds. */
export interface Report {
  readonly driver: string;
  readonly hardware: string;
  /** ISO 8601, to the second. */
  readonly date: string;
  /** Variants that were not built. */
  readonly absent: readonly Form[];
  readonly counts: Readonly<Record<Outcome, number>>;
  readonly programs: readonly {
    readonly name: string;
    readonly outcome: Outcome;
    readonly reason: string;
    readonly milliseconds: Readonly<Partial<Record<Way, number>>>;
    readonly details: readonly string[];
  }[];
}

const titles: Readonly<Record<Outcome, string>> = {
  same: "same",
  skipped: "skipped",
  refused: "refused",
  stale: "STALE",
  different: "DIFFERENT",
  failed: "FAILED",
};

function time(run: Run | undefined): string {
  return (run === undefined ? "" : String(run.milliseconds)).padStart(8);
}

export function tableHead(nameWidth: number): string {
  const columns = ways.map((column) => column.padStart(8)).join("");
  return `${"program".padEnd(nameWidth)}${columns}  result, times in ms`;
}

export function tableRow(finding: Finding, nameWidth: number): string {
  const times = ways.map((way) => time(finding.runs[way])).join("");
  const reason = finding.reason === "" ? "" : `: ${finding.reason}`;
  return `${finding.name.padEnd(nameWidth)}${times}  ${titles[finding.outcome]}${reason}`;
}

export function countOutcomes(findings: readonly Finding[]): Record<Outcome, number> {
  const counts = { same: 0, skipped: 0, refused: 0, stale: 0, different: 0, failed: 0 };
  for (const { outcome } of findings) counts[outcome] += 1;
  return counts;
}

/** One line: the number of programs by outcome. */
export function summary(findings: readonly Finding[]): string {
  const counts = Object.entries(countOutcomes(findings)).filter(([, count]) => count > 0);
  return `${findings.length} programs: ${counts.map(([outcome, count]) => `${count} ${outcome}`).join(", ")}`;
}

/** The details of every failure. */
export function failureText(findings: readonly Finding[]): string {
  return findings
    .filter(({ outcome }) => isFailure(outcome))
    .map(({ name, reason, details }) =>
      [`${name}: ${reason}`, ...details.map((line) => `  ${line}`)].join("\n"),
    )
    .join("\n\n");
}

export function makeReport(
  about: Pick<Report, "driver" | "hardware" | "absent">,
  date: Date,
  findings: readonly Finding[],
): Report {
  return {
    ...about,
    date: `${date.toISOString().slice(0, 19)}Z`,
    counts: countOutcomes(findings),
    programs: findings.map(({ name, outcome, reason, details, runs }) => ({
      name,
      outcome,
      reason,
      milliseconds: Object.fromEntries(Object.entries(runs).map(([way, run]) => [way, run.milliseconds])),
      details,
    })),
  };
}
