// SPDX-License-Identifier: Apache-2.0

/** A worker's periodic report on one device. */
interface Reading {
  readonly uuid: string;
  /** Measured time that the device has worked for the session. */
  readonly computeUsedNs: number;
  /** Whether the session's time is measured: it is not while the session has the device to itself. */
  readonly isMeasured: boolean;
}

interface Sample extends Reading {
  readonly atMs: number;
}

/**
 * The shortest interval over which a rate is computed. Workers report every second, and additionally when their memory
 * use changes.
 */
const leastMs = 500;
/** Age after which a worker's last report is too old to describe the present. */
const staleMs = 5_000;

/** Measures how busy a session keeps its devices, from its worker's reports. Times are of the monotonic clock. */
export class ComputeMeter {
  readonly #before = new Map<string, Sample>();
  readonly #last = new Map<string, Sample>();

  note(readings: readonly Reading[], atMs: number): void {
    for (const { uuid, computeUsedNs, isMeasured } of readings) {
      const last = this.#last.get(uuid);
      const before = this.#before.get(uuid);
      if (last !== undefined && (before === undefined || last.atMs - before.atMs >= leastMs)) {
        this.#before.set(uuid, last);
      }
      this.#last.set(uuid, { uuid, computeUsedNs, isMeasured, atMs });
    }
  }

  /**
   * Returns the fraction of time, 0 to 1, for which a device has worked for the session over the last second or two.
   * `alone`: the session has the device to itself and is not measured; undefined: unknown.
   */
  rateOf(uuid: string, nowMs: number): number | "alone" | undefined {
    const last = this.#last.get(uuid);
    if (last === undefined || nowMs - last.atMs > staleMs) return undefined;
    if (!last.isMeasured) return "alone";
    const before = this.#before.get(uuid);
    if (before === undefined || last.atMs <= before.atMs) return undefined;
    const busyMs = (last.computeUsedNs - before.computeUsedNs) / 1e6;
    return Math.min(Math.max(busyMs / (last.atMs - before.atMs), 0), 1);
  }
}
