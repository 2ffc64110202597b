// SPDX-License-Identifier: Apache-2.0

// Claims with the state of the pool that their views need.

import type { ClaimRecord } from "../domain/records.ts";
import type { Pool } from "./pool.ts";

/** Increases with every change of the claim, and with every change of the reason why it waits. */
export function versionOf(pool: Pool, { name, version }: ClaimRecord): number {
  return Math.max(version, pool.waiting.of(name)?.revision ?? 0);
}

/** The positions of the waiting claims in their queues, from 1. */
export function waitingPositions(pool: Pool): ReadonlyMap<string, number> {
  const lengths = new Map<string, number>();
  const positions = new Map<string, number>();
  for (const name of pool.waiting.order) {
    const claim = pool.ledger.claims.get(name);
    if (claim?.state === "pending") {
      const position = (lengths.get(claim.queue) ?? 0) + 1;
      lengths.set(claim.queue, position);
      positions.set(name, position);
    }
  }
  return positions;
}

export function claimsByArrival(pool: Pool): ClaimRecord[] {
  return [...pool.ledger.claims.values()].sort((a, b) => a.arrival - b.arrival);
}
