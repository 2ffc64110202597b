// SPDX-License-Identifier: Apache-2.0

import { type HolderRef, type Reason, reason } from "@millpond/api";
import {
  add,
  type Amount,
  excessOf,
  isWithinGuarantee,
  nothing,
  partOfGuarantee,
  type Quota,
  subtract,
} from "./quota.ts";
import type { RunningTotals } from "./claim.ts";
import { limitOfUser, type QueueSpec, type TenantSpec } from "./queue.ts";

/** The queue, tenant and user to which a claim is charged. */
export interface ChargedParty {
  readonly queue: string;
  readonly tenant: string;
  /** Empty: none. */
  readonly user: string;
  readonly isPreemptible: boolean;
}

/** The undecided claims. */
export interface Turns {
  /** Whether a queue, or one below it, has undecided claims. */
  has(queue: string): boolean;
  /** Thousandths of a device that are not charged to a queue in this pass. */
  discount(queue: string): number;
  /** Since when the first undecided claim of a leaf queue has waited. */
  since(queue: string): number;
}

/** The claim or gang for which something is reserved. */
export interface ReservationOwner {
  readonly keeper: HolderRef;
  readonly waitedSeconds: number;
}

/** Sums of charges. */
interface Charges {
  /** By queue. */
  readonly used: Map<string, Amount>;
  /** The part of it that belongs to claims that may not be preempted. */
  readonly firm: Map<string, Amount>;
  readonly byTenant: Map<string, Amount>;
  /** By `userKey`. */
  readonly byUser: Map<string, Amount>;
}

function noCharges(totals?: Pick<RunningTotals, "tenants" | "users">): Charges {
  return {
    used: new Map(),
    firm: new Map(),
    byTenant: new Map(totals?.tenants),
    byUser: new Map(totals?.users),
  };
}

/** Users of different tenants are different users; names of tenants contain no slash. */
export function userKey({ tenant, user }: Pick<ChargedParty, "tenant" | "user">): string {
  return `${tenant}/${user}`;
}

/** The queue, tenant or user whose quota an amount exceeds. */
interface Excess {
  readonly kind: "queue" | "tenant" | "user";
  readonly name: string;
  readonly reason: Reason;
}

/** The queues with their usage, during one decision. */
export class QueueTree {
  readonly #queues: ReadonlyMap<string, QueueSpec>;
  readonly #children: ReadonlyMap<string, readonly QueueSpec[]>;
  readonly #tenants: ReadonlyMap<string, TenantSpec>;
  readonly #charged: Charges;
  /** The part of the usage that belongs to claims with notice. */
  readonly #leaving = new Map<string, Amount>();
  /** Capacity that becomes free for waiting claims. */
  readonly #promised = new Map<string, Amount>();
  /** Quota that is reserved for waiting claims. */
  readonly #kept = noCharges();
  /** The first claim or gang for which quota was reserved: by queue, by tenant, and by user. */
  readonly #keepers = {
    queue: new Map<string, ReservationOwner>(),
    tenant: new Map<string, ReservationOwner>(),
    user: new Map<string, ReservationOwner>(),
  };

  /** @param totals usage of the running claims. Default: none */
  constructor(queues: readonly QueueSpec[], tenants: readonly TenantSpec[], totals?: RunningTotals) {
    this.#queues = new Map(queues.map((queue) => [queue.name, queue]));
    this.#children = Map.groupBy(
      queues.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
      ({ parent }) => parent,
    );
    this.#tenants = new Map(tenants.map((tenant) => [tenant.name, tenant]));
    this.#charged = noCharges(totals);
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

  usedByUser(payer: Pick<ChargedParty, "tenant" | "user">): Amount {
    return this.#charged.byUser.get(userKey(payer)) ?? nothing;
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

  charge(payer: ChargedParty, amount: Amount): void {
    this.#account(this.#charged, payer, amount, add);
  }

  refund(payer: ChargedParty, amount: Amount): void {
    this.#account(this.#charged, payer, amount, subtract);
  }

  /** The claim has notice: it is charged until its refund, but no longer counts towards its queue's guarantee. */
  leave({ queue }: ChargedParty, amount: Amount): void {
    this.#change(this.#leaving, queue, amount, add);
  }

  /** The claim waits for capacity that others release: its queue cannot claim the same part of its guarantee twice. */
  promise({ queue }: ChargedParty, amount: Amount): void {
    this.#change(this.#promised, queue, amount, add);
  }

  /**
   * Reserves quota for a waiting claim: later claims only get what this leaves. A claim that exceeds its quotas on its own
   * reserves nothing. One that waits for its own user's limit reserves only quota of that user, whose claims must not hold up
   * those of others.
   *
   * @returns whether it is reserved
   */
  keep(payer: ChargedParty, amount: Amount, keeper: ReservationOwner): boolean {
    if (this.#excess(payer, amount, [noCharges()]) !== undefined) {
      return false;
    }
    const note = (kind: Excess["kind"], name: string) => {
      this.#keepers[kind].set(name, this.#keepers[kind].get(name) ?? keeper);
    };
    note("user", userKey(payer));
    if (this.isBeyondUser(payer, amount)) {
      this.#chargeUser(this.#kept, payer, amount, add);
      return true;
    }
    this.#account(this.#kept, payer, amount, add);
    for (const { name } of this.chain(payer.queue)) {
      note("queue", name);
    }
    note("tenant", payer.tenant);
    return true;
  }

  /** Whether the quota of its user forbids the amount. */
  isBeyondUser(payer: ChargedParty, amount: Amount): boolean {
    return this.#excess(payer, amount, [this.#charged])?.kind === "user";
  }

  /** Why the amount cannot be charged; undefined when it can. */
  refusal(payer: ChargedParty, amount: Amount): Reason | undefined {
    const excess = this.#excess(payer, amount, [this.#charged]);
    if (excess !== undefined) {
      return excess.reason;
    }
    const isAnyKept = this.#keepers.user.size > 0;
    const kept = isAnyKept ? this.#excess(payer, amount, [this.#charged, this.#kept]) : undefined;
    if (kept === undefined) {
      return undefined;
    }
    const { kind, name } = kept;
    const keeper = this.#keepers[kind].get(kind === "user" ? userKey(payer) : name);
    // A reservation belongs to a claim or gang; without one, the quota itself is exceeded.
    return keeper === undefined ? kept.reason : reason("quota-kept-for", { scope: kind, name, ...keeper });
  }

  #excess(payer: ChargedParty, amount: Amount, charges: readonly Charges[]): Excess | undefined {
    const sum = (which: keyof Charges, key: string, plus: Amount) =>
      charges.reduce((total, each) => add(total, each[which].get(key) ?? nothing), plus);
    const { tenant, user } = payer;
    const ofTenant = this.#tenants.get(tenant);
    // The narrowest quota first: only its user can release it, and claims of other users do not wait for it.
    const ofUser = excessOf(sum("byUser", userKey(payer), amount), limitOfUser(ofTenant, user));
    if (ofUser !== undefined) {
      return { kind: "user", name: user, reason: reason("user-at-limit", { user, tenant, excess: ofUser }) };
    }
    for (const { name, limit, guaranteed, borrowing } of this.chain(payer.queue)) {
      const after = sum("used", name, amount);
      const excess = excessOf(after, limit);
      if (excess !== undefined) {
        return { kind: "queue", name, reason: reason("queue-at-limit", { queue: name, excess }) };
      }
      const firm = sum("firm", name, amount);
      const borrowed = refuseBorrowed(name, { guaranteed, borrowing }, payer, { all: after, firm });
      if (borrowed !== undefined) {
        return { kind: "queue", name, reason: borrowed };
      }
    }
    const excess = excessOf(sum("byTenant", tenant, amount), ofTenant?.limit ?? {});
    return excess && { kind: "tenant", name: tenant, reason: reason("tenant-at-limit", { tenant, excess }) };
  }

  /** The levels of the queue's chain whose guarantee covers the usage with the amount added. */
  guaranteedLevels(queue: string, amount: Amount): string[] {
    return this.chain(queue)
      .filter(({ name, guaranteed }) => {
        const owed = add(this.used(name), this.#promised.get(name) ?? nothing);
        return isWithinGuarantee(add(owed, amount), guaranteed);
      })
      .map(({ name }) => name);
  }

  /**
   * Whether the queue, and each queue above it up to those for which `isAbove` holds, keeps its guarantee without the
   * amount.
   */
  canSpare(queue: string, amount: Amount, isAbove: (level: string) => boolean): boolean {
    return this.chain(queue).every(
      ({ name, guaranteed }) =>
        isAbove(name) || partOfGuarantee(subtract(this.#staying(name), amount), guaranteed) >= 1,
    );
  }

  /**
   * The queue whose turn it is. At each level, queues below their guarantee come first, by the used fraction of it; then
   * queues by usage above the guarantee divided by weight (weighted fair share). Ties go to the queue whose first claim has
   * waited longest.
   *
   * @returns undefined when no queue has claims left
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

  /** Usage, guarantee and limit of a queue. */
  use(name: string): Reason {
    const { guaranteed, limit } = this.#queues.get(name) ?? { guaranteed: {}, limit: {} };
    return reason("in-use", {
      gpuMilli: this.used(name).gpuMilli,
      guaranteedGpuMilli: guaranteed.gpuMilli,
      limitGpuMilli: limit.gpuMilli,
    });
  }

  /** Usage and limit of a tenant. */
  useOfTenant(name: string): Reason {
    return reason("in-use", {
      gpuMilli: this.usedByTenant(name).gpuMilli,
      guaranteedGpuMilli: undefined,
      limitGpuMilli: this.#tenants.get(name)?.limit.gpuMilli,
    });
  }

  /** Usage and limit of a user; undefined: the user has no limit. */
  useOfUser(payer: Pick<ChargedParty, "tenant" | "user">): Reason | undefined {
    const limit = limitOfUser(this.#tenants.get(payer.tenant), payer.user);
    return Object.keys(limit).length === 0
      ? undefined
      : reason("in-use", {
          gpuMilli: this.usedByUser(payer).gpuMilli,
          guaranteedGpuMilli: undefined,
          limitGpuMilli: limit.gpuMilli,
        });
  }

  #staying(name: string): Amount {
    return subtract(this.used(name), this.#leaving.get(name) ?? nothing);
  }

  #account(charges: Charges, payer: ChargedParty, amount: Amount, sum: typeof add): void {
    const { used, firm, byTenant } = charges;
    const { queue, tenant, isPreemptible } = payer;
    this.#change(used, queue, amount, sum);
    if (!isPreemptible) {
      this.#change(firm, queue, amount, sum);
    }
    byTenant.set(tenant, sum(byTenant.get(tenant) ?? nothing, amount));
    this.#chargeUser(charges, payer, amount, sum);
  }

  #chargeUser({ byUser }: Charges, payer: ChargedParty, amount: Amount, sum: typeof add): void {
    if (payer.user !== "") {
      const key = userKey(payer);
      byUser.set(key, sum(byUser.get(key) ?? nothing, amount));
    }
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

/** Why a queue's usage would be borrowing that is not allowed. Usage that may be preempted blocks no other queue. */
function refuseBorrowed(
  name: string,
  { guaranteed, borrowing }: Pick<QueueSpec, "guaranteed" | "borrowing">,
  { isPreemptible }: ChargedParty,
  after: { readonly all: Amount; readonly firm: Amount },
): Reason | undefined {
  const own = fillGuarantee(guaranteed);
  if (borrowing === "none") {
    const excess = excessOf(after.all, own);
    return excess && reason("queue-does-not-borrow", { queue: name, excess });
  }
  if (borrowing === "any" || isPreemptible) {
    return undefined;
  }
  const excess = excessOf(after.firm, own);
  return excess && reason("queue-borrows-preemptible", { queue: name, excess });
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

/** Without borrowing, a bound without a guarantee is zero; but a guarantee in one unit does not bound the others. */
function fillGuarantee(guaranteed: Quota): Quota {
  return Object.keys(guaranteed).length === 0 ? { gpuMilli: 0 } : guaranteed;
}
