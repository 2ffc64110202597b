// SPDX-License-Identifier: Apache-2.0
/** Observations of a program's run, and the differences of two runs. */

/** The compared behaviour of a program's run, and its duration. */
export interface Run {
  /** Exit status; 128 plus the signal's number after a signal; undefined after a timeout. */
  readonly status: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
  readonly milliseconds: number;
}

/** How a run ended, as text. */
export function ending(run: Run): string {
  if (run.status === undefined) return "did not end in time";
  return run.status > 128 ? `ended by signal ${run.status - 128}` : `exit status ${run.status}`;
}

/** Reasons of the parts that a program skipped, in the order of its output. */
export function skippedReasons(stdout: string): readonly string[] {
  return [...stdout.matchAll(/^skipped: (.*)$/gm)].map(([, reason = ""]) => reason);
}

/** Lines of context around a difference. */
const context = 3;
/** Upper bound on the size of the comparison's table: lines of one side times lines of the other. */
const largestTable = 4_000_000;

type Edit = { readonly mark: " " | "-" | "+"; readonly line: string };

/** The shortest edit script from one text to another, by the longest common subsequence of lines. */
function edits(before: readonly string[], after: readonly string[]): readonly Edit[] {
  if (before.length * after.length > largestTable) {
    const removed = before.map((line): Edit => ({ mark: "-", line }));
    return [...removed, ...after.map((line): Edit => ({ mark: "+", line }))];
  }
  const width = after.length + 1;
  const length = new Uint32Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      const below = length[(i + 1) * width + j] ?? 0;
      const right = length[i * width + j + 1] ?? 0;
      const both = (length[(i + 1) * width + j + 1] ?? 0) + 1;
      length[i * width + j] = before[i] === after[j] ? both : Math.max(below, right);
    }
  }
  const result: Edit[] = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    const left = before[i];
    const right = after[j];
    if (left !== undefined && left === right) {
      result.push({ mark: " ", line: left });
      i += 1;
      j += 1;
    } else if (
      left !== undefined &&
      (right === undefined || (length[(i + 1) * width + j] ?? 0) >= (length[i * width + j + 1] ?? 0))
    ) {
      result.push({ mark: "-", line: left });
      i += 1;
    } else {
      result.push({ mark: "+", line: right ?? "" });
      j += 1;
    }
  }
  return result;
}

/** The differing lines with context, marked as in `diff -u`; empty if the texts are equal. */
export function lineDiff(before: string, after: string): readonly string[] {
  if (before === after) return [];
  const all = edits(before.split("\n"), after.split("\n"));
  const shown = new Set<number>();
  for (const [index, edit] of all.entries()) {
    if (edit.mark === " ") continue;
    for (let near = index - context; near <= index + context; near += 1) shown.add(near);
  }
  const lines: string[] = [];
  let isGap = false;
  for (const [index, { mark, line }] of all.entries()) {
    if (shown.has(index)) lines.push(`${mark}${line}`);
    else if (!isGap) lines.push("…");
    isGap = !shown.has(index);
  }
  return lines;
}
