// SPDX-License-Identifier: Apache-2.0

/** Memory of a process at one point of a long run. */
export interface MemorySample {
  /** Captures, steps or sessions up to this point. */
  readonly done: number;
  readonly mebibytes: number;
}

/** Growth below this is noise of the allocator. */
const noiseShare = 0.04;
const noiseMebibytes = 2;

/**
 * The growth of memory in the second half of a run, when everything that is kept has been allocated: the median of its last
 * third minus that of its first.
 */
export function growthOf(samples: readonly MemorySample[]): { mebibytes: number; isFlat: boolean } {
  const half = samples.slice(Math.floor(samples.length / 2));
  const third = Math.max(1, Math.floor(half.length / 3));
  const before = medianOf(half.slice(0, third));
  const mebibytes = Number((medianOf(half.slice(-third)) - before).toFixed(2));
  return { mebibytes, isFlat: mebibytes <= before * noiseShare + noiseMebibytes };
}

function medianOf(samples: readonly MemorySample[]): number {
  const sorted = samples.map(({ mebibytes }) => mebibytes).toSorted((a, b) => a - b);
  const middle = sorted[Math.floor(sorted.length / 2)];
  if (middle === undefined) throw new Error("no samples of memory");
  return middle;
}
