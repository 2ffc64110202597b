// SPDX-License-Identifier: Apache-2.0

/** Samples of a tenant's counter: counts, and times in nanoseconds of the host's monotonic clock, both increasing. */
export interface Trace {
  readonly at: readonly number[];
  readonly count: readonly number[];
}

/** The count at a time, interpolated between two samples. */
function countAt({ at, count }: Trace, time: number): number {
  const after = at.findIndex((each) => each >= time);
  const [last, first] = [count.at(-1) ?? 0, count[0] ?? 0];
  if (after < 0) return last;
  if (after === 0) return first;
  const [from = 0, to = 0] = [at[after - 1], at[after]];
  const [before = 0, then = 0] = [count[after - 1], count[after]];
  return before + ((then - before) * (time - from)) / (to - from);
}

/** The interval in which all traces have samples, without the first `skipNs`. */
export function commonTime(traces: readonly Trace[], skipNs: number): readonly [number, number] {
  const from = Math.max(...traces.map(({ at }) => at[0] ?? 0)) + skipNs;
  return [from, Math.min(...traces.map(({ at }) => at.at(-1) ?? 0))];
}

/**
 * The fraction of each whole window for which the GPU worked for the tenant, computed from the work finished in it.
 *
 * @param workNs GPU time of each counted unit of work on an otherwise idle GPU
 */
export function shares(
  trace: Trace,
  [from, to]: readonly [number, number],
  { workNs, windowNs }: { readonly workNs: number; readonly windowNs: number },
): number[] {
  const found: number[] = [];
  for (let start = from; start + windowNs <= to; start += windowNs) {
    const finished = countAt(trace, start + windowNs) - countAt(trace, start);
    found.push((finished * workNs) / windowNs);
  }
  return found;
}
