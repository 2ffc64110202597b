// SPDX-License-Identifier: Apache-2.0

import type { Clock } from "./clock.ts";
import { Deadlines } from "./deadlines.ts";

interface Lease {
  deadlineMs: number;
  /** Number of calls that wait on the claim: while there is one, the lease does not run out. */
  holds: number;
}

/**
 * Which claims somebody still wants. In memory only: renewing costs no write, and after a restart every claim gets a
 * fresh lease.
 */
export class Leases {
  readonly #clock: Clock;
  readonly #leases = new Map<string, Lease>();
  /** When leases run out that are not held and have not run out, or of which nobody has taken note yet. */
  readonly #deadlines = new Deadlines();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  renew(claim: string, seconds: number): void {
    const deadlineMs = this.#clock.monotonicMs() + seconds * 1000;
    const lease = this.#leases.get(claim) ?? { deadlineMs, holds: 0 };
    this.#leases.set(claim, lease);
    lease.deadlineMs = Math.max(lease.deadlineMs, deadlineMs);
    if (lease.holds === 0) {
      this.#deadlines.set(claim, lease.deadlineMs);
    }
  }

  /** Keeps the lease from running out until what is returned is called. */
  hold(claim: string): () => void {
    const lease = this.#leases.get(claim);
    if (lease === undefined) {
      return () => undefined;
    }
    lease.holds += 1;
    this.#deadlines.delete(claim);
    return () => {
      lease.holds -= 1;
      if (lease.holds === 0 && this.#leases.get(claim) === lease) {
        this.#deadlines.set(claim, lease.deadlineMs);
      }
    };
  }

  isExpired(claim: string): boolean {
    const lease = this.#leases.get(claim);
    return lease === undefined || (lease.holds === 0 && lease.deadlineMs <= this.#clock.monotonicMs());
  }

  /** Milliseconds until the lease runs out unless it is renewed; 0 when it has. */
  remainingMs(claim: string): number {
    const lease = this.#leases.get(claim);
    return lease === undefined ? 0 : Math.max(0, lease.deadlineMs - this.#clock.monotonicMs());
  }

  /** When the next lease runs out that is not held, on the monotonic clock. */
  nextDeadlineMs(): number | undefined {
    return this.#deadlines.next();
  }

  /** Takes note of the leases that have run out: each is named once, unless it is renewed or held again. */
  takeExpired(): string[] {
    return this.#deadlines.takeDue(this.#clock.monotonicMs());
  }

  forget(claim: string): void {
    this.#leases.delete(claim);
    this.#deadlines.delete(claim);
  }
}
