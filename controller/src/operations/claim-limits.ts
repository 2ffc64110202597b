// SPDX-License-Identifier: Apache-2.0

// How many claims may be kept that have no devices, so that no tenant takes the places of the others.

import { millpondError } from "@millpond/api";
import type { ClaimRecord } from "../domain/records.ts";
import type { Transaction } from "../state/transaction.ts";

/** Places for waiting claims, which the tenants that have any share equally once they are taken. */
const waitingPlaces = 1000;

/** Waiting claims that every tenant may have, however many other tenants there are. */
const leastWaitingPlaces = 50;

/** Lazy claims of a tenant whose devices no program needs. Each costs memory, and nothing is planned for it. */
const maxDormant = 2000;

/** @throws MILLPOND_E_TOO_MANY_CLAIMS where one more claim of the tenant may not wait */
export function refuseTooManyWaiting(transaction: Transaction, tenant: string): void {
  const waiting = transaction.pendingClaims();
  if (waiting.length < waitingPlaces) {
    return;
  }
  const tenants = new Set(waiting.map((claim) => claim.tenant)).add(tenant);
  const places = Math.max(leastWaitingPlaces, Math.floor(waitingPlaces / tenants.size));
  refuseBeyond(waiting, { tenant, places, state: "waiting" });
}

/** @throws MILLPOND_E_TOO_MANY_CLAIMS where the tenant may not have one more lazy claim that no program has called */
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
