// SPDX-License-Identifier: Apache-2.0

import type { Clock } from "./clock.ts";
import { Deadlines } from "./deadlines.ts";

interface Lease {
  deadlineMs: number;
  /** Number of calls that wait on the claim; the lease does not expire while there is one. */
  holds: number;
}

/** Leases of claims. In memory only: renewing costs no write, and after a restart every claim gets a fresh lease. */
export class Leases {
  readonly #clock: Clock;
  readonly #leases = new Map<string, Lease>();
  /** Expiry times of leases that are not held, until the expiry has been reported. */
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

  /** Keeps the lease from expiring until the returned function is called. */
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

  get byClaim(): ReadonlyMap<string, Readonly<Lease>> {
    return this.#leases;
  }

  isExpired(claim: string): boolean {
    const lease = this.#leases.get(claim);
    return lease === undefined || (lease.holds === 0 && lease.deadlineMs <= this.#clock.monotonicMs());
  }

  /** Milliseconds until the lease expires unless it is renewed; 0 when it has expired. */
  remainingMs(claim: string): number {
    const lease = this.#leases.get(claim);
    return lease === undefined ? 0 : Math.max(0, lease.deadlineMs - this.#clock.monotonicMs());
  }

  /** When the next lease that is not held expires, on the monotonic clock. */
  nextDeadlineMs(): number | undefined {
    return this.#deadlines.next();
  }

  /** Returns the leases that have expired: each is reported once, unless it is renewed or held again. */
  takeExpired(): string[] {
    return this.#deadlines.takeDue(this.#clock.monotonicMs());
  }

  forget(claim: string): void {
    this.#leases.delete(claim);
    this.#deadlines.delete(claim);
  }
}
