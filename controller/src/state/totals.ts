// SPDX-License-Identifier: Apache-2.0

import {
  add,
  type Amount,
  amountOn,
  nothing,
  type RunningTotals,
  subtract,
  userKey,
} from "@millpond/scheduler";
import { toStatement } from "../domain/to-scheduler-holding.ts";
import type { AllocationRecord, ClaimRecord, NodeRecord } from "../domain/records.ts";
import { standingOf } from "../domain/to-scheduler-claim.ts";

/** The amount that a bound claim holds, and the accounts that it is charged to. */
export interface Part {
  readonly queue: string;
  readonly tenant: string;
  /** Empty: none. */
  readonly user: string;
  /** Empty: none. */
  readonly gang: string;
  readonly isPreemptible: boolean;
  readonly amount: Amount;
}

/** Undefined when the claim is no longer bound to it. */
export function partOf(
  allocation: AllocationRecord,
  claim: ClaimRecord | undefined,
  node: NodeRecord | undefined,
): Part | undefined {
  if (allocation.releasedRevision !== null || claim === undefined) {
    return undefined;
  }
  const { queue, tenant, user, gang, isPreemptible } = standingOf(claim);
  return { queue, tenant, user, gang, isPreemptible, amount: amountOn(node, toStatement(allocation, node)) };
}

/** Running sums over all bound claims, maintained instead of computed for each decision. */
export class Totals implements RunningTotals {
  readonly queues: Map<string, Amount>;
  readonly firm: Map<string, Amount>;
  readonly tenants: Map<string, Amount>;
  readonly users: Map<string, Amount>;
  readonly gangs: Map<string, number>;

  /** Empty, or a copy. */
  constructor(of?: RunningTotals) {
    this.queues = new Map(of?.queues);
    this.firm = new Map(of?.firm);
    this.tenants = new Map(of?.tenants);
    this.users = new Map(of?.users);
    this.gangs = new Map(of?.gangs);
  }

  add({ queue, tenant, user, gang, isPreemptible, amount }: Part): void {
    put(this.queues, queue, amount);
    if (!isPreemptible) {
      put(this.firm, queue, amount);
    }
    put(this.tenants, tenant, amount);
    if (user !== "") {
      put(this.users, userKey({ tenant, user }), amount);
    }
    if (gang !== "") {
      this.gangs.set(gang, (this.gangs.get(gang) ?? 0) + 1);
    }
  }

  remove({ queue, tenant, user, gang, isPreemptible, amount }: Part): void {
    take(this.queues, queue, amount);
    if (!isPreemptible) {
      take(this.firm, queue, amount);
    }
    take(this.tenants, tenant, amount);
    if (user !== "") {
      take(this.users, userKey({ tenant, user }), amount);
    }
    const count = (this.gangs.get(gang) ?? 0) - 1;
    if (count > 0) {
      this.gangs.set(gang, count);
    } else {
      this.gangs.delete(gang);
    }
  }
}

function put(sums: Map<string, Amount>, key: string, amount: Amount): void {
  sums.set(key, add(sums.get(key) ?? nothing, amount));
}

/** Every claim has some memory, so an account without memory has no claims. */
function take(sums: Map<string, Amount>, key: string, amount: Amount): void {
  const left = subtract(sums.get(key) ?? nothing, amount);
  if (left.memoryBytes === 0n) {
    sums.delete(key);
  } else {
    sums.set(key, left);
  }
}
