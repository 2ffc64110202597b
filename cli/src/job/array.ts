// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";

/** The tasks of an array, and how many of them may run at a time. */
export interface TaskArray {
  readonly indexes: readonly number[];
  readonly atOnce: number;
}

const mostTasks = 10_000;
const mostAtOnce = 256;
const greatestIndex = 999_999;

/**
 * Reads `0-9`, `1,3,7-9`, `0-99%8`: indexes, and after `%` the number of tasks at a time.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseArray(text: string): TaskArray {
  const match = /^([\d,-]+)(?:%(\d{1,6}))?$/.exec(text);
  if (match === null) throw invalid(text, "it is not of the form 0-9, 1,3,7 or 0-99%8");
  const [, list = "", limit] = match;
  const indexes = new Set<number>();
  for (const part of list.split(",")) {
    const range = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(part);
    if (range === null) throw invalid(text, `${quote(part)} is neither an index nor a range of them`);
    const first = Number(range[1]);
    const last = range[2] === undefined ? first : Number(range[2]);
    if (last < first) throw invalid(text, `the range ${part} ends before it begins`);
    if (last > greatestIndex) throw invalid(text, `an index is ${greatestIndex} at most`);
    if (last - first >= mostTasks) throw invalid(text, `an array has ${mostTasks} tasks at most`);
    for (let index = first; index <= last; index += 1) indexes.add(index);
    if (indexes.size > mostTasks) throw invalid(text, `an array has ${mostTasks} tasks at most`);
  }
  const atOnce = limit === undefined ? Math.min(indexes.size, mostAtOnce) : Number(limit);
  if (atOnce < 1 || atOnce > mostAtOnce) throw invalid(text, `1 to ${mostAtOnce} tasks can run at a time`);
  return { indexes: [...indexes].sort((one, other) => one - other), atOnce };
}

function invalid(text: string, why: string) {
  return millpondError("MILLPOND_E_INVALID", `--array ${quote(text)}: ${why}`, {
    remedy: "Write, for example, --array 0-9, or --array 0-99%8 for 8 at a time.",
  });
}

/**
 * Runs the tasks in order, up to `atOnce` at a time; starts none after `signal` is aborted.
 *
 * @returns the status of each started task, by index
 */
export async function runTasks(
  { indexes, atOnce }: TaskArray,
  signal: AbortSignal,
  runTask: (index: number) => Promise<number>,
): Promise<ReadonlyMap<number, number>> {
  const statuses = new Map<number, number>();
  const left = indexes.values();
  const lane = async (): Promise<void> => {
    for (const index of left) {
      if (signal.aborted) return;
      statuses.set(index, await runTask(index));
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, indexes.length) }, lane));
  return statuses;
}

/** `8 of 10 tasks succeeded; 3 ended with 1, 7 with 75`. */
export function describeTasks(array: TaskArray, statuses: ReadonlyMap<number, number>): string {
  const failed = [...statuses].filter(([, status]) => status !== 0).sort(([one], [other]) => one - other);
  const shown = failed.slice(0, 10).map(([index, status]) => `${index} ended with ${status}`);
  const more = failed.length > shown.length ? [`and ${failed.length - shown.length} others failed`] : [];
  const missing = array.indexes.length - statuses.size;
  const parts = [
    `${statuses.size - failed.length} of ${array.indexes.length} tasks succeeded`,
    [...shown, ...more].join(", "),
    missing === 0 ? "" : `${missing} were not started`,
  ];
  return parts.filter((part) => part !== "").join("; ");
}
