// SPDX-License-Identifier: Apache-2.0

// The time of the controller: all times in its answers are of its clock, and the browser's may be wrong by hours.

/** The header has whole seconds, and answers take time: smaller differences are not measurable. */
const smallestMs = 3000;

let aheadMs = 0;

/** Compares the clocks by the `Date` header of an answer that has just arrived. */
export function compareClocks(date: string | null): void {
  const sent = Date.parse(date ?? "");
  if (!Number.isNaN(sent)) {
    const difference = sent + 500 - Date.now();
    aheadMs = Math.abs(difference) < smallestMs ? 0 : difference;
  }
}

/** Returns the time by the controller's clock, Unix milliseconds. */
export function controllerNow(): number {
  return Date.now() + aheadMs;
}
