// SPDX-License-Identifier: Apache-2.0

import { add, type Amount, amountOn, nothing, type RunningTotals, subtract } from "@millpond/scheduler";
import { toStatement } from "./picture.ts";
import type { AllocationRecord, ClaimRecord, NodeRecord } from "./store/store.ts";

/** What a bound claim holds, and on whose account. */
export interface Part {
  readonly queue: string;
  readonly tenant: string;
  /** Empty: none. */
  readonly gang: string;
  readonly amount: Amount;
}

/** Undefined when the claim is not bound to it any more. */
export function partOf(
  allocation: AllocationRecord,
  claim: ClaimRecord | undefined,
  node: NodeRecord | undefined,
): Part | undefined {
  if (allocation.releasedRevision !== null || claim === undefined) {
    return undefined;
  }
  const { queue, tenant, gang } = claim;
  return { queue, tenant, gang, amount: amountOn(node, toStatement(allocation, node)) };
}

/** What all bound claims hold: sums that are kept up instead of being made anew for each decision. */
export class Totals implements RunningTotals {
  readonly queues: Map<string, Amount>;
  readonly tenants: Map<string, Amount>;
  readonly gangs: Map<string, number>;

  /** Of nobody, or a copy. */
  constructor(of?: RunningTotals) {
    this.queues = new Map(of?.queues);
    this.tenants = new Map(of?.tenants);
    this.gangs = new Map(of?.gangs);
  }

  add({ queue, tenant, gang, amount }: Part): void {
    this.queues.set(queue, add(this.queues.get(queue) ?? nothing, amount));
    this.tenants.set(tenant, add(this.tenants.get(tenant) ?? nothing, amount));
    if (gang !== "") {
      this.gangs.set(gang, (this.gangs.get(gang) ?? 0) + 1);
    }
  }

  remove({ queue, tenant, gang, amount }: Part): void {
    take(this.queues, queue, amount);
    take(this.tenants, tenant, amount);
    const count = (this.gangs.get(gang) ?? 0) - 1;
    if (count > 0) {
      this.gangs.set(gang, count);
    } else {
      this.gangs.delete(gang);
    }
  }
}

/** Every claim has some memory, so who has nothing left has no claims left. */
function take(sums: Map<string, Amount>, key: string, amount: Amount): void {
  const left = subtract(sums.get(key) ?? nothing, amount);
  if (left.memoryBytes === 0n) {
    sums.delete(key);
  } else {
    sums.set(key, left);
  }
}
