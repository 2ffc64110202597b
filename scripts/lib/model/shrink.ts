// SPDX-License-Identifier: Apache-2.0
// Finds a smaller list that still fails: delta debugging (Zeller and Hildebrandt, 2002), without its complements of subsets.

/**
 * Removes ever smaller runs of items as long as `fails` holds for the rest.
 *
 * @param deadlineMs in terms of performance.now(): the smallest list found by then is returned
 */
export async function shrink<T>(
  items: readonly T[],
  fails: (rest: readonly T[]) => Promise<boolean>,
  deadlineMs: number,
): Promise<readonly T[]> {
  let smallest = items;
  let size = Math.ceil(items.length / 2);
  while (size >= 1) {
    let hasShrunk = false;
    // From the end, because no item depends on a later one.
    for (let end = smallest.length; end > 0; end -= size) {
      if (performance.now() > deadlineMs) return smallest;
      const rest = smallest.filter((_, i) => i < end - size || i >= end);
      if (rest.length === 0 || rest.length === smallest.length || !(await fails(rest))) continue;
      smallest = rest;
      hasShrunk = true;
    }
    if (size === 1 && !hasShrunk) break;
    size = size === 1 ? 1 : Math.ceil(size / 2);
  }
  return smallest;
}
