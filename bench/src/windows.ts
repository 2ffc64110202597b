// SPDX-License-Identifier: Apache-2.0

/** What a tenant had counted when it looked: times in nanoseconds of the machine's monotonic clock, both growing. */
export interface Trace {
  readonly at: readonly number[];
  readonly count: readonly number[];
}

/** The count at a time, interpolated between two looks. */
function countAt({ at, count }: Trace, time: number): number {
  const after = at.findIndex((each) => each >= time);
  const [last, first] = [count.at(-1) ?? 0, count[0] ?? 0];
  if (after < 0) return last;
  if (after === 0) return first;
  const [from = 0, to = 0] = [at[after - 1], at[after]];
  const [before = 0, then = 0] = [count[after - 1], count[after]];
  return before + ((then - before) * (time - from)) / (to - from);
}

/** From when until when all of them looked, without the first `skipNs`. */
export function commonTime(traces: readonly Trace[], skipNs: number): readonly [number, number] {
  const from = Math.max(...traces.map(({ at }) => at[0] ?? 0)) + skipNs;
  return [from, Math.min(...traces.map(({ at }) => at.at(-1) ?? 0))];
}

/**
 * What part of each whole window the GPU worked for the tenant, by the work that it finished there.
 *
 * @param workNs what each that was counted takes the GPU when nobody else is there
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
