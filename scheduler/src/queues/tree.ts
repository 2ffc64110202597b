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

/** Sums of what is charged. */
interface Charges {
  /** By queue. */
  readonly used: Map<string, Amount>;
  /** Of it what claims have that may not be taken back. */
  readonly firm: Map<string, Amount>;
  readonly byTenant: Map<string, Amount>;
}

/** Whose quota an amount passes. */
interface Excess {
  readonly kind: "queue" | "tenant";
  readonly name: string;
  /** In words, with the numbers. */
  readonly reason: string;
}

/** The queues with what their claims have, in the making of one decision. */
export class QueueTree {
  readonly #queues: ReadonlyMap<string, QueueSpec>;
  readonly #children: ReadonlyMap<string, readonly QueueSpec[]>;
  readonly #tenants: ReadonlyMap<string, TenantSpec>;
  readonly #charged: Charges;
  /** Of what is used, what claims have that have had notice. */
  readonly #leaving = new Map<string, Amount>();
  /** What becomes free for claims that wait. */
  readonly #promised = new Map<string, Amount>();
  /** What of their quotas is kept for claims that wait. */
  readonly #kept: Charges = { used: new Map(), firm: new Map(), byTenant: new Map() };
  /** For whom it was kept first, in words: by queue, and by tenant. */
  readonly #keepers = { queues: new Map<string, string>(), tenants: new Map<string, string>() };

  /** @param totals What the claims have. Default: nothing. */
  constructor(queues: readonly QueueSpec[], tenants: readonly TenantSpec[], totals?: RunningTotals) {
    this.#queues = new Map(queues.map((queue) => [queue.name, queue]));
    this.#children = Map.groupBy(
      queues.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      ({ parent }) => parent,
    );
    this.#tenants = new Map(tenants.map((tenant) => [tenant.name, tenant]));
    this.#charged = { used: new Map(), firm: new Map(), byTenant: new Map(totals?.tenants) };
    for (const [queue, amount] of totals?.queues ?? []) {
      this.#change(this.#charged.used, queue, amount, add);
    }
    for (const [queue, amount] of totals?.firm ?? []) {
      this.#change(this.#charged.firm, queue, amount, add);
    }
  }

  used(queue: string): Amount {
    return this.#charged.used.get(queue) ?? nothing;
  }

  usedByTenant(tenant: string): Amount {
    return this.#charged.byTenant.get(tenant) ?? nothing;
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
    this.#account(this.#charged, payer, amount, add);
  }

  refund(payer: Payer, amount: Amount): void {
    this.#account(this.#charged, payer, amount, subtract);
  }

  /** It has had notice: it counts until it is refunded, but what its queue is guaranteed can no longer be taken of it. */
  leave({ queue }: Payer, amount: Amount): void {
    this.#change(this.#leaving, queue, amount, add);
  }

  /** It waits for what others give back: its queue cannot call for that on its guarantee once more. */
  promise({ queue }: Payer, amount: Amount): void {
    this.#change(this.#promised, queue, amount, add);
  }

  /**
   * Keeps of its quotas what it waits for: others that come later get only what that leaves. One that is beyond them by
   * itself is in nobody's way.
   *
   * @param keeper In words.
   * @returns Whether it is kept.
   */
  keep(payer: Payer, amount: Amount, keeper: string): boolean {
    const alone: Charges = { used: new Map(), firm: new Map(), byTenant: new Map() };
    if (this.#excess(payer, amount, [alone]) !== undefined) {
      return false;
    }
    this.#account(this.#kept, payer, amount, add);
    for (const { name } of this.chain(payer.queue)) {
      this.#keepers.queues.set(name, this.#keepers.queues.get(name) ?? keeper);
    }
    this.#keepers.tenants.set(payer.tenant, this.#keepers.tenants.get(payer.tenant) ?? keeper);
    return true;
  }

  /** Why the amount cannot be charged, in words with the numbers; undefined when it can. */
  refusal(payer: Payer, amount: Amount): string | undefined {
    const excess = this.#excess(payer, amount, [this.#charged]);
    if (excess !== undefined) {
      return excess.reason;
    }
    const isAnyKept = this.#keepers.tenants.size > 0;
    const kept = isAnyKept ? this.#excess(payer, amount, [this.#charged, this.#kept]) : undefined;
    if (kept === undefined) {
      return undefined;
    }
    const { kind, name } = kept;
    const keeper = (kind === "queue" ? this.#keepers.queues : this.#keepers.tenants).get(name);
    return `what ${kind} ${name} may still have is kept for ${keeper}`;
  }

  #excess(payer: Payer, amount: Amount, charges: readonly Charges[]): Excess | undefined {
    const sum = (which: keyof Charges, key: string, plus: Amount) =>
      charges.reduce((total, each) => add(total, each[which].get(key) ?? nothing), plus);
    for (const { name, limit, guaranteed, borrowing } of this.chain(payer.queue)) {
      const after = sum("used", name, amount);
      const excess = describeExcess(after, limit);
      if (excess !== undefined) {
        return {
          kind: "queue",
          name,
          reason: `queue ${name} is at its limit: with it, it would have ${excess}`,
        };
      }
      const firm = sum("firm", name, amount);
      const borrowed = describeBorrowed(name, { guaranteed, borrowing }, payer, { all: after, firm });
      if (borrowed !== undefined) {
        return { kind: "queue", name, reason: borrowed };
      }
    }
    const { tenant } = payer;
    const limit = this.#tenants.get(tenant)?.limit ?? {};
    const excess = describeExcess(sum("byTenant", tenant, amount), limit);
    const reason = `tenant ${tenant} is at its limit: with it, it would have ${excess}`;
    return excess === undefined ? undefined : { kind: "tenant", name: tenant, reason };
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

  #staying(name: string): Amount {
    return subtract(this.used(name), this.#leaving.get(name) ?? nothing);
  }

  #account(
    { used, firm, byTenant }: Charges,
    { queue, tenant, isPreemptible }: Payer,
    amount: Amount,
    sum: typeof add,
  ): void {
    this.#change(used, queue, amount, sum);
    if (!isPreemptible) {
      this.#change(firm, queue, amount, sum);
    }
    byTenant.set(tenant, sum(byTenant.get(tenant) ?? nothing, amount));
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

/** Why what a queue would have would be borrowed and may not be. What may be taken back again is in nobody's way. */
function describeBorrowed(
  name: string,
  { guaranteed, borrowing }: Pick<QueueSpec, "guaranteed" | "borrowing">,
  { isPreemptible }: Payer,
  after: { readonly all: Amount; readonly firm: Amount },
): string | undefined {
  const own = fillGuarantee(guaranteed);
  if (borrowing === "none") {
    const excess = describeExcess(after.all, own);
    return excess && `queue ${name} does not borrow: with it, it would have ${excess}`;
  }
  if (borrowing === "any" || isPreemptible) {
    return undefined;
  }
  const excess = describeExcess(after.firm, own);
  return (
    excess &&
    `queue ${name} borrows for preemptible claims only: with it, those that are not would have ${excess}`
  );
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
