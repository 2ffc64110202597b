// SPDX-License-Identifier: Apache-2.0

import { Histogram } from "@millpond/platform";

/** Counters of the running controller. */
export class Counters {
  readonly waits = new Histogram("millpond_claim_wait_seconds");
  readonly changes = new Histogram("millpond_change_seconds");
  readonly events = new Map<string, number>();

  countEvent(kind: string): void {
    this.events.set(kind, (this.events.get(kind) ?? 0) + 1);
  }
}
