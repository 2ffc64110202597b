// SPDX-License-Identifier: Apache-2.0

// A few refused calls, or calls without effect, are recorded one by one. Of a flood only the number is
// recorded, so that no token can fill the audit log or keep the disk busy.

import type { AuditEntry } from "../domain/records.ts";
import type { AuditedCall } from "../state/audit.ts";

/** How many calls with the same token, method and result get a record of their own in one window. */
const recordsPerWindow = 20;

const windowMs = 60_000;

interface Window {
  records: number;
  counted: number;
}

export interface IdleCallsOptions {
  /** Calls back once, after `delayMs` milliseconds. */
  readonly after: (delayMs: number, callback: () => void) => unknown;
  /** Unix seconds. */
  readonly now: () => number;
  readonly write: (entry: AuditEntry) => Promise<void>;
  /** Called when the count could not be written. */
  readonly onFailure: (error: unknown) => void;
}

export class IdleCalls {
  readonly #options: IdleCallsOptions;
  readonly #windows = new Map<string, Window>();

  constructor(options: IdleCallsOptions) {
    this.#options = options;
  }

  /** Records a call, or counts it. */
  async record(call: AuditedCall, result: string): Promise<void> {
    const entry = call.toEntry(this.#options.now(), result);
    const key = JSON.stringify([entry.who, entry.what, result]);
    let window = this.#windows.get(key);
    if (window === undefined) {
      window = { records: 0, counted: 0 };
      this.#windows.set(key, window);
      this.#options.after(windowMs, () => this.#end(key, entry));
    }
    if (window.records >= recordsPerWindow) {
      window.counted += 1;
      return;
    }
    window.records += 1;
    await this.#options.write(entry);
  }

  #end(key: string, first: AuditEntry): void {
    const { now, write, onFailure } = this.#options;
    const counted = this.#windows.get(key)?.counted ?? 0;
    this.#windows.delete(key);
    if (counted > 0) {
      const why = `and ${counted} more of these calls within ${windowMs / 1000} s`;
      write({ ...first, at: now(), subject: "", why }).catch(onFailure);
    }
  }
}
