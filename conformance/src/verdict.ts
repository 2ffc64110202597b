// SPDX-License-Identifier: Apache-2.0
/** The verdict on a program: a pure function of its runs. */
import { ending, lineDiff, type Run, skippedReasons } from "./compare.ts";

export type Transport = "shm" | "tcp";
export const transports: readonly Transport[] = ["shm", "tcp"];
/** How a program was run: on the driver itself, or through Millpond. */
export type Way = "native" | Transport;
export const ways: readonly Way[] = ["native", ...transports];
export type Runs = Readonly<Partial<Record<Way, Run>>>;

/**
 * `refused`: it fails for a listed reason; `skipped`: it reported that the device lacks a feature; `stale`: it is listed as
 * failing but passes.
 */
export type Outcome = "same" | "skipped" | "refused" | "stale" | "different" | "failed";

export interface Verdict {
  readonly outcome: Outcome;
  /** Why, in one line; empty for `same`. */
  readonly reason: string;
  /** Details of a failure, one line each. */
  readonly details: readonly string[];
}

/** Whether an outcome fails the whole run. */
export function isFailure(outcome: Outcome): boolean {
  return outcome === "stale" || outcome === "different" || outcome === "failed";
}

/** Lines of output that are shown. */
const shownLines = 20;

function lastLines(text: string): readonly string[] {
  return text === "" ? [] : text.trimEnd().split("\n").slice(-shownLines);
}

function complaints(run: Run): readonly string[] {
  return lastLines(run.stderr).map((line) => `stderr: ${line}`);
}

/** The reference of every run: a recorded output, otherwise that of the first run. */
interface Reference {
  readonly title: string;
  readonly stdout: string;
}

function referenceOf(runs: Runs, recorded: string | undefined): Reference {
  const first = ways.find((way) => runs[way] !== undefined);
  // A program may report that its device lacks features, which the recorded device may have had.
  const isSkipped = first !== undefined && skippedReasons(runs[first]?.stdout ?? "").length > 0;
  if (recorded !== undefined && !isSkipped) return { title: "recorded", stdout: recorded };
  return { title: first ?? "nothing", stdout: first === undefined ? "" : (runs[first]?.stdout ?? "") };
}

/** The first problem of the runs; undefined when there is none. */
function problem(runs: Runs, reference: Reference): Verdict | undefined {
  for (const way of ways) {
    const run = runs[way];
    if (run === undefined) continue;
    if (run.status !== 0) {
      const details = [...lastLines(run.stdout), ...complaints(run)];
      return { outcome: "failed", reason: `${way}: ${ending(run)}`, details };
    }
    const lines = lineDiff(reference.stdout, run.stdout);
    if (lines.length === 0) continue;
    const details = [`- ${reference.title}, + ${way}`, ...lines, ...complaints(run)];
    return { outcome: "different", reason: `${way}: not as ${reference.title}`, details };
  }
  return undefined;
}

/** A lasting reason why a program fails on the software GPU: in every run, only without Millpond, or only over TCP. */
export interface Refusal {
  readonly of: "every run" | "native" | "tcp";
  readonly why: string;
}

/**
 * Every run must end with status 0 and print the same.
 *
 * @param recorded the output on a real GPU; undefined: the first run is the reference
 * @param refusal why this program is known to fail on this device; undefined: it should pass
 */
export function judge(runs: Runs, recorded: string | undefined, refusal: Refusal | undefined): Verdict {
  const found = problem(runs, referenceOf(runs, recorded));
  if (refusal !== undefined && found === undefined)
    return { outcome: "stale", reason: `passes, but is listed: ${refusal.why}`, details: [] };
  if (refusal?.of === "every run") return { outcome: "refused", reason: refusal.why, details: [] };
  if (refusal !== undefined) {
    const { [refusal.of]: _, ...others } = runs;
    return judge(others, recorded, undefined);
  }
  if (found !== undefined) return found;
  const said = ways.map((way) => runs[way]?.stdout ?? "").find((stdout) => stdout !== "") ?? "";
  const reasons = skippedReasons(said);
  return reasons.length > 0
    ? { outcome: "skipped", reason: reasons.join("; "), details: [] }
    : { outcome: "same", reason: "", details: [] };
}
