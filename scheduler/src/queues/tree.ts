// SPDX-License-Identifier: Apache-2.0

import {
  add,
  type Amount,
  describeExcess,
  formatGpus,
  isWithinGuarantee,
  nothing,
  partOfGuarantee,
  type Quota,
  subtract,
} from "./quota.ts";
import type { RunningTotals } from "./claim.ts";
import type { QueueSpec, TenantSpec } from "./queue.ts";

/** Who is charged for a claim. */
export interface Payer {
  readonly queue: string;
  readonly tenant: string;
  readonly isPreemptible: boolean;
}

/** What is left to be decided. */
export interface Turns {
  /** Whether a queue, or one below it, has claims left. */
  has(queue: string): boolean;
  /** Thousandths of a device that do not count against a queue now. */
  discount(queue: string): number;
  /** Since when the first claim that a queue without children has left waits. */
  since(queue: string): number;
}

/** The queues with what their claims have, in the making of one decision. */
export class QueueTree {
  readonly #queues: ReadonlyMap<string, QueueSpec>;
  readonly #children: ReadonlyMap<string, readonly QueueSpec[]>;
  readonly #tenants: ReadonlyMap<string, TenantSpec>;
  readonly #used = new Map<string, Amount>();
  /** Of it what claims have that may not be taken back. */
  readonly #firm = new Map<string, Amount>();
  readonly #usedByTenant: Map<string, Amount>;
  /** Of what is used, what claims have that have had notice. */
  readonly #leaving = new Map<string, Amount>();
  /** What becomes free for claims that wait. */
  readonly #promised = new Map<string, Amount>();

  /** @param totals What the claims have. Default: nothing. */
  constructor(queues: readonly QueueSpec[], tenants: readonly TenantSpec[], totals?: RunningTotals) {
    this.#queues = new Map(queues.map((queue) => [queue.name, queue]));
    this.#children = Map.groupBy(
      queues.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      ({ parent }) => parent,
    );
    this.#tenants = new Map(tenants.map((tenant) => [tenant.name, tenant]));
    for (const [queue, amount] of totals?.queues ?? []) {
      this.#change(this.#used, queue, amount, add);
    }
    for (const [queue, amount] of totals?.firm ?? []) {
      this.#change(this.#firm, queue, amount, add);
    }
    this.#usedByTenant = new Map(totals?.tenants);
  }

  used(queue: string): Amount {
    return this.#used.get(queue) ?? nothing;
  }

  usedByTenant(tenant: string): Amount {
    return this.#usedByTenant.get(tenant) ?? nothing;
  }

  /** The queue, its parent, and so on. */
  chain(name: string): QueueSpec[] {
    const chain: QueueSpec[] = [];
    for (let queue = this.#queues.get(name); queue !== undefined; queue = this.#queues.get(queue.parent)) {
      chain.push(queue);
      if (chain.length > this.#queues.size) {
        throw new RangeError(`the queue ${name} is its own ancestor`);
      }
    }
    return chain;
  }

  charge(payer: Payer, amount: Amount): void {
    this.#account(payer, amount, add);
  }

  refund(payer: Payer, amount: Amount): void {
    this.#account(payer, amount, subtract);
  }

  /** It has had notice: it counts until it is refunded, but what its queue is guaranteed can no longer be taken of it. */
  leave({ queue }: Payer, amount: Amount): void {
    this.#change(this.#leaving, queue, amount, add);
  }

  /** It waits for what others give back: its queue cannot call for that on its guarantee once more. */
  promise({ queue }: Payer, amount: Amount): void {
    this.#change(this.#promised, queue, amount, add);
  }

  /** Why the amount cannot be charged, in words with the numbers; undefined when it can. */
  refusal(payer: Payer, amount: Amount): string | undefined {
    for (const { name, limit, guaranteed, borrowing } of this.chain(payer.queue)) {
      const after = add(this.used(name), amount);
      const excess = describeExcess(after, limit);
      if (excess !== undefined) {
        return `queue ${name} is at its limit: with it, it would have ${excess}`;
      }
      const borrowed = this.#borrowed(name, { guaranteed, borrowing }, payer, amount);
      if (borrowed !== undefined) {
        return borrowed;
      }
    }
    const limit = this.#tenants.get(payer.tenant)?.limit ?? {};
    const excess = describeExcess(add(this.usedByTenant(payer.tenant), amount), limit);
    return excess === undefined
      ? undefined
      : `tenant ${payer.tenant} is at its limit: with it, it would have ${excess}`;
  }

  /** The levels of the queue's chain whose guarantee covers what it would have with the amount. */
  guaranteedLevels(queue: string, amount: Amount): string[] {
    return this.chain(queue)
      .filter(({ name, guaranteed }) => {
        const owed = add(this.used(name), this.#promised.get(name) ?? nothing);
        return isWithinGuarantee(add(owed, amount), guaranteed);
      })
      .map(({ name }) => name);
  }

  /** Whether the queue, and each queue above it up to those that are, keeps its guarantee when the amount is taken. */
  canSpare(queue: string, amount: Amount, isAbove: (level: string) => boolean): boolean {
    return this.chain(queue).every(
      ({ name, guaranteed }) =>
        isAbove(name) || partOfGuarantee(subtract(this.#staying(name), amount), guaranteed) >= 1,
    );
  }

  /**
   * The queue whose turn it is: at each level first whoever is below the guarantee, by how much of it is used, then who
   * has least beyond it in relation to the weight; among equals whose first claim has waited longest.
   *
   * @returns undefined when no queue has claims left.
   */
  next(turns: Turns, parent = ""): string | undefined {
    let best: { readonly queue: QueueSpec; readonly rank: readonly number[] } | undefined;
    for (const queue of this.#children.get(parent) ?? []) {
      if (turns.has(queue.name)) {
        const rank = [...this.#rank(queue, turns.discount(queue.name)), this.#since(queue.name, turns)];
        if (best === undefined || isLess(rank, best.rank)) {
          best = { queue, rank };
        }
      }
    }
    if (best === undefined) {
      return undefined;
    }
    const { name } = best.queue;
    return this.#children.has(name) ? this.next(turns, name) : name;
  }

  /** `2 of 8 GPUs guaranteed, 12 at most`: for people. */
  describe(name: string): string {
    const queue = this.#queues.get(name);
    const { gpuMilli } = this.used(name);
    const { guaranteed, limit } = queue ?? { guaranteed: {}, limit: {} };
    return [
      `${formatGpus(gpuMilli)} GPUs in use`,
      ...(guaranteed.gpuMilli === undefined ? [] : [`${formatGpus(guaranteed.gpuMilli)} guaranteed`]),
      ...(limit.gpuMilli === undefined ? [] : [`${formatGpus(limit.gpuMilli)} at most`]),
    ].join(", ");
  }

  /** The same of a tenant. */
  describeTenant(name: string): string {
    const { gpuMilli } = this.usedByTenant(name);
    const limit = this.#tenants.get(name)?.limit.gpuMilli;
    return `${formatGpus(gpuMilli)} GPUs in use${limit === undefined ? "" : `, ${formatGpus(limit)} at most`}`;
  }

  /** Why the amount would be borrowed and may not be. What may be taken back again is in nobody's way. */
  #borrowed(
    name: string,
    { guaranteed, borrowing }: Pick<QueueSpec, "guaranteed" | "borrowing">,
    { isPreemptible }: Payer,
    amount: Amount,
  ): string | undefined {
    const own = fillGuarantee(guaranteed);
    if (borrowing === "none") {
      const excess = describeExcess(add(this.used(name), amount), own);
      return excess && `queue ${name} does not borrow: with it, it would have ${excess}`;
    }
    if (borrowing === "any" || isPreemptible) {
      return undefined;
    }
    const excess = describeExcess(add(this.#firm.get(name) ?? nothing, amount), own);
    return (
      excess &&
      `queue ${name} borrows for preemptible claims only: with it, those that are not would have ${excess}`
    );
  }

  #staying(name: string): Amount {
    return subtract(this.used(name), this.#leaving.get(name) ?? nothing);
  }

  #account({ queue, tenant, isPreemptible }: Payer, amount: Amount, sum: typeof add): void {
    this.#change(this.#used, queue, amount, sum);
    if (!isPreemptible) {
      this.#change(this.#firm, queue, amount, sum);
    }
    this.#usedByTenant.set(tenant, sum(this.usedByTenant(tenant), amount));
  }

  #change(sums: Map<string, Amount>, queue: string, amount: Amount, sum: typeof add): void {
    for (const { name } of this.chain(queue)) {
      sums.set(name, sum(sums.get(name) ?? nothing, amount));
    }
  }

  #rank({ name, weight, guaranteed }: QueueSpec, discount: number): readonly [number, number] {
    const used = this.used(name);
    const gpuMilli = Math.max(0, used.gpuMilli - discount);
    const part = partOfGuarantee({ ...used, gpuMilli }, guaranteed);
    return part < 1 ? [0, part] : [1, Math.max(0, gpuMilli - (guaranteed.gpuMilli ?? 0)) / weight];
  }

  #since(name: string, turns: Turns): number {
    const children = this.#children.get(name);
    return children === undefined
      ? turns.since(name)
      : Math.min(
          ...children.filter((child) => turns.has(child.name)).map((child) => this.#since(child.name, turns)),
        );
  }
}

function isLess(a: readonly number[], b: readonly number[]): boolean {
  for (const [position, value] of a.entries()) {
    const other = b[position] ?? 0;
    if (value !== other) {
      return value < other;
    }
  }
  return false;
}

/** Without borrowing, what is not guaranteed is not there; but a guarantee in one unit does not bound the others. */
function fillGuarantee(guaranteed: Quota): Quota {
  return Object.keys(guaranteed).length === 0 ? { gpuMilli: 0 } : guaranteed;
}
