// SPDX-License-Identifier: Apache-2.0

import { type Changes, merge, present } from "./write-set.ts";
import type { ClaimRecord } from "../domain/records.ts";

/** Claims by name, with indexes of waiting, dormant and ended claims, and of the members of a gang. */
export class ClaimIndex {
  readonly #byName = new Map<string, ClaimRecord>();
  readonly #pending = new Set<string>();
  readonly #dormant = new Set<string>();
  /** In the order in which they ended. */
  readonly #ended = new Set<string>();
  /** The claims that have not ended, by gang. */
  readonly #byGang = new Map<string, Set<string>>();

  constructor(claims: readonly ClaimRecord[]) {
    this.merge(new Map(claims.map((claim) => [claim.name, claim])));
  }

  get byName(): ReadonlyMap<string, ClaimRecord> {
    return this.#byName;
  }

  get pending(): ReadonlySet<string> {
    return this.#pending;
  }

  get dormant(): ReadonlySet<string> {
    return this.#dormant;
  }

  /** In the order in which they ended. */
  get ended(): ReadonlySet<string> {
    return this.#ended;
  }

  /** The claims of a gang that have not ended. */
  ofGang(gang: string): ReadonlySet<string> {
    return this.#byGang.get(gang) ?? nobody;
  }

  merge(changes: Changes<string, ClaimRecord>): void {
    for (const name of changes.keys()) {
      const gang = this.#byName.get(name)?.gang ?? "";
      const members = this.#byGang.get(gang);
      members?.delete(name);
      if (members?.size === 0) {
        this.#byGang.delete(gang);
      }
      this.#pending.delete(name);
      this.#dormant.delete(name);
      this.#ended.delete(name);
    }
    merge(this.#byName, changes);
    for (const { name, gang, state, endedAt } of present(changes).sort(byEnd)) {
      if (endedAt !== null) {
        this.#ended.add(name);
        continue;
      }
      if (state === "pending") {
        this.#pending.add(name);
      }
      if (state === "dormant") {
        this.#dormant.add(name);
      }
      if (gang !== "") {
        this.#byGang.set(gang, (this.#byGang.get(gang) ?? new Set()).add(name));
      }
    }
  }
}

const nobody: ReadonlySet<string> = new Set();

/** Compares by the order in which claims ended. */
export function byEnd(a: ClaimRecord, b: ClaimRecord): number {
  return a.version - b.version || a.arrival - b.arrival;
}
