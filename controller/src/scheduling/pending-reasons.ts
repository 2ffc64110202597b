// SPDX-License-Identifier: Apache-2.0

import { mayKnowAll, type Reason, renderReason } from "@millpond/api";
import type { Blocked, QueueDecision } from "@millpond/scheduler";

interface Known extends Blocked {
  /** Revision at which the reason last changed. */
  readonly revision: number;
  /** The unredacted text. A reason has changed if its text has. */
  readonly words: string;
}

/** Why claims wait, and in which order. In memory only, because it follows from the state. */
export class PendingReasons {
  #blocked: ReadonlyMap<string, Known> = new Map();
  #order: readonly string[] = [];

  /**
   * Stores a decision; undefined: no claim waits.
   *
   * @returns claims whose reason has changed
   */
  learn(decision: QueueDecision | undefined, revision: number): string[] {
    const changed: string[] = [];
    const blocked = new Map<string, Known>();
    for (const [claim, why] of decision?.blocked ?? []) {
      const known = this.#blocked.get(claim);
      const words = inWords(why.reason);
      if (known?.words !== words) {
        changed.push(claim);
      }
      blocked.set(claim, { ...why, words, revision: known?.words === words ? known.revision : revision });
    }
    this.#blocked = blocked;
    this.#order = decision?.order ?? [];
    return changed;
  }

  /** Undefined when the claim does not wait. */
  of(claim: string): Known | undefined {
    return this.#blocked.get(claim);
  }

  /** Why claims wait, by claim. */
  get blocked(): ReadonlyMap<string, Blocked> {
    return this.#blocked;
  }

  /** Names in the order in which the scheduler considered them, over all queues. */
  get order(): readonly string[] {
    return this.#order;
  }
}

/** Claims with the same request share a reason, which is rendered once. */
const worded = new WeakMap<Reason, string>();

function inWords(reason: Reason): string {
  const words = worded.get(reason) ?? renderReason(reason, mayKnowAll);
  worded.set(reason, words);
  return words;
}
