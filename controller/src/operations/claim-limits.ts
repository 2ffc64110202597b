// SPDX-License-Identifier: Apache-2.0

// How many claims without devices are kept, so that no tenant takes the places of the others.

import { millpondError } from "@millpond/api";
import type { ClaimRecord } from "../domain/records.ts";
import type { Transaction } from "../state/transaction.ts";

/** Places for waiting claims. When all are taken, the tenants with waiting claims have equal numbers of them. */
const waitingPlaces = 1000;

/** The number of waiting claims that every tenant may have, however many other tenants there are. */
const leastWaitingPlaces = 50;

/** The most dormant lazy claims of a tenant. Each costs memory, although nothing is planned for it. */
const maxDormant = 2000;

/** @throws MILLPOND_E_TOO_MANY_CLAIMS if the tenant may not have another waiting claim */
export function refuseTooManyWaiting(transaction: Transaction, tenant: string): void {
  const waiting = transaction.pendingClaims();
  if (waiting.length < waitingPlaces) {
    return;
  }
  const tenants = new Set(waiting.map((claim) => claim.tenant)).add(tenant);
  const places = Math.max(leastWaitingPlaces, Math.floor(waitingPlaces / tenants.size));
  refuseBeyond(waiting, { tenant, places, state: "waiting" });
}

/** @throws MILLPOND_E_TOO_MANY_CLAIMS if the tenant may not have another dormant claim */
export function refuseTooManyDormant(transaction: Transaction, tenant: string): void {
  refuseBeyond(transaction.dormantClaims(), { tenant, places: maxDormant, state: "dormant" });
}

function refuseBeyond(
  claims: readonly Pick<ClaimRecord, "tenant">[],
  { tenant, places, state }: { readonly tenant: string; readonly places: number; readonly state: string },
): void {
  const count = claims.filter((claim) => claim.tenant === tenant).length;
  if (count >= places) {
    throw millpondError(
      "MILLPOND_E_TOO_MANY_CLAIMS",
      `the tenant ${tenant} has ${count} of the ${places} ${state} claims that it may have now`,
    );
  }
}
