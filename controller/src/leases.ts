// SPDX-License-Identifier: Apache-2.0

import type { Clock } from "./clock.ts";

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

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  renew(claim: string, seconds: number): void {
    const deadlineMs = this.#clock.monotonicMs() + seconds * 1000;
    const lease = this.#leases.get(claim);
    if (lease === undefined) {
      this.#leases.set(claim, { deadlineMs, holds: 0 });
    } else {
      lease.deadlineMs = Math.max(lease.deadlineMs, deadlineMs);
    }
  }

  /** Keeps the lease from running out until what is returned is called. */
  hold(claim: string): () => void {
    const lease = this.#leases.get(claim);
    if (lease === undefined) {
      return () => undefined;
    }
    lease.holds += 1;
    return () => {
      lease.holds -= 1;
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

  /** When the next lease runs out that has not and is not held, on the monotonic clock. */
  nextDeadlineMs(): number | undefined {
    const now = this.#clock.monotonicMs();
    let next: number | undefined;
    for (const { deadlineMs, holds } of this.#leases.values()) {
      if (holds === 0 && deadlineMs > now && (next === undefined || deadlineMs < next)) {
        next = deadlineMs;
      }
    }
    return next;
  }

  forget(claim: string): void {
    this.#leases.delete(claim);
  }
}
