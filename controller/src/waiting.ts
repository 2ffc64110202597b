// SPDX-License-Identifier: Apache-2.0

import type { Blocked, QueueDecision } from "@millpond/scheduler";

interface Known extends Blocked {
  /** Revision at which the reason became what it is. */
  readonly revision: number;
}

/** Why claims wait, and in which order. In memory only: it follows from the state. */
export class Waiting {
  #blocked: ReadonlyMap<string, Known> = new Map();
  #order: readonly string[] = [];

  /** Takes over a decision, undefined: nobody waits. @returns Claims whose reason has changed. */
  learn(decision: QueueDecision | undefined, revision: number): string[] {
    const changed: string[] = [];
    const blocked = new Map<string, Known>();
    for (const [claim, why] of decision?.blocked ?? []) {
      const known = this.#blocked.get(claim);
      if (known?.reason !== why.reason) {
        changed.push(claim);
      }
      blocked.set(claim, { ...why, revision: known?.reason === why.reason ? known.revision : revision });
    }
    this.#blocked = blocked;
    this.#order = decision?.order ?? [];
    return changed;
  }

  /** Undefined when the claim does not wait. */
  of(claim: string): Known | undefined {
    return this.#blocked.get(claim);
  }

  /** By claim: why it waits. */
  get blocked(): ReadonlyMap<string, Blocked> {
    return this.#blocked;
  }

  /** Names in the order in which they are looked at, of all queues. */
  get order(): readonly string[] {
    return this.#order;
  }
}
