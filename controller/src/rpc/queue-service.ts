// SPDX-License-Identifier: Apache-2.0

import {
  Borrowing,
  maxMemoryBytes,
  millpondError,
  parseName,
  type Queue,
  type QueueService,
  type Quota as QuotaMessage,
  quote,
  UsageBy,
  type UserLimits,
} from "@millpond/api";
import {
  type Amount,
  limitOfUser,
  makeQueueTree,
  type QueueSpec,
  type QueueTree,
  type Quota,
  type TenantSpec,
} from "@millpond/scheduler";
import type { ServiceMethods } from "./service-methods.ts";
import { mapInTurns } from "../auth/fairness/fair-turns.ts";
import type { ClaimRecord, UsageRecord } from "../domain/records.ts";
import type { Transaction } from "../state/transaction.ts";
import { isTokenName } from "../domain/caller.ts";
import { callerOf } from "../auth/visibility.ts";
import { unixSeconds } from "../timers/clock.ts";
import type { Pool } from "../pool/pool.ts";
import { deleteQueue, deleteTenant, putQueue, type PutTenant, putTenant } from "../operations/queues.ts";
import { allQueues } from "../scheduling/scheduler-view.ts";
import { defaultTenantName } from "../domain/claim-spec.ts";
import type { Store } from "../state/store.ts";
import { currentUsage, type UsageKey, usagePages, UsageSums } from "../operations/usage.ts";
import { checkRange } from "../domain/validate-claim.ts";

const maxWeight = 10_000;
/** The most users of a tenant that have limits of their own. */
const maxUserLimits = 1000;
/** A million GPUs. */
const maxGpuMilli = 1_000_000_000;

const borrowings = new Map<number, QueueSpec["borrowing"]>([
  [Borrowing.UNSPECIFIED, "any"],
  [Borrowing.ANY, "any"],
  [Borrowing.PREEMPTIBLE, "preemptible"],
  [Borrowing.NONE, "none"],
]);

const usageKeys = new Map<number, UsageKey>([
  [UsageBy.UNSPECIFIED, "queue"],
  [UsageBy.QUEUE, "queue"],
  [UsageBy.USER, "user"],
  [UsageBy.CLAIM, "claim"],
  [UsageBy.MODEL, "model"],
]);

const borrowingNumbers = {
  any: Borrowing.ANY,
  preemptible: Borrowing.PREEMPTIBLE,
  none: Borrowing.NONE,
} as const;

/** The last second of the year 9999. */
const lastSecond = 253_402_300_799;

export function makeQueueService(pool: Pool, store: Store): ServiceMethods<typeof QueueService> {
  return {
    async putQueue({ queue, createOnly, changeOnly }) {
      const spec = checkQueue(queue);
      await putQueue(pool, spec, { createOnly, changeOnly });
      return { queue: one(await readQueues(pool), spec.name) };
    },

    async listQueues() {
      return { queues: await readQueues(pool) };
    },

    async deleteQueue({ name }) {
      await deleteQueue(pool, parseName(name, "queue"));
      return {};
    },

    async putTenant({ tenant, createOnly, changeOnly }) {
      if (tenant === undefined) {
        throw millpondError("MILLPOND_E_INVALID", 'the request has no "tenant"');
      }
      const spec = {
        name: parseName(tenant.name, "tenant"),
        limit: checkQuota(tenant.limit, "limit"),
        users: checkUserLimits(tenant.userLimits),
      };
      await putTenant(pool, spec, { createOnly, changeOnly });
      return { tenant: one(await readTenants(pool), spec.name) };
    },

    async listTenants(_request, context) {
      const { tenant } = callerOf(context);
      const tenants = await readTenants(pool);
      return { tenants: tenants.filter(({ name }) => tenant === "" || name === tenant) };
    },

    async deleteTenant({ name }) {
      await deleteTenant(pool, parseName(name, "tenant"));
      return {};
    },

    async getUsage(request, context) {
      const { tenant } = callerOf(context);
      const now = unixSeconds(pool.clock);
      const to = request.to === 0n ? now : Math.min(now, Number(request.to));
      const from = Number(request.from);
      if (from < 0 || from > to) {
        throw millpondError(
          "MILLPOND_E_INVALID",
          `the period from ${formatMoment(from)} to ${formatMoment(to)} ends before it begins`,
        );
      }
      const by = checkUsageBy(request.by);
      const sums = new UsageSums({ from, to }, by);
      const open = currentUsage(pool, now);
      // Intervals that end while the stored ones are read are among these, too.
      const wereOpen = new Set(open.map(intervalOf));
      const add = (record: UsageRecord) => {
        if (tenant === "" || record.tenant === tenant) sums.add(record);
      };
      await mapInTurns(open, context, add);
      for await (const page of usagePages(store, { from, to })) {
        await mapInTurns(page, context, (record) => {
          if (!wereOpen.has(intervalOf(record))) add(record);
        });
      }
      return { usage: sums.toList(), from: BigInt(from), to: BigInt(to) };
    },
  };
}

function intervalOf({ kind, claim, model, beganAt }: UsageRecord): string {
  return [kind, claim, model, beganAt].join("\n");
}

/** Formats seconds from an untrusted source. */
function formatMoment(seconds: number): string {
  return seconds >= 0 && seconds <= lastSecond
    ? `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`
    : `second ${seconds}`;
}

function checkQueue(queue: Queue | undefined): QueueSpec {
  if (queue === undefined) {
    throw millpondError("MILLPOND_E_INVALID", 'the request has no "queue"');
  }
  const borrowing = borrowings.get(queue.borrowing);
  if (borrowing === undefined) {
    throw millpondError("MILLPOND_E_INVALID", `borrowing is ${queue.borrowing}, which is not known`);
  }
  return {
    name: parseName(queue.name, "queue"),
    parent: queue.parent === "" ? "" : parseName(queue.parent, "parent"),
    weight: checkRange(queue.weight === 0 ? 1 : queue.weight, "weight", 1, maxWeight),
    borrowing,
    guaranteed: checkQuota(queue.guaranteed, "guaranteed"),
    limit: checkQuota(queue.limit, "limit"),
  };
}

function checkQuota(quota: QuotaMessage | undefined, what: string): Quota {
  const { gpuMilli, computePercent, memoryBytes } = quota ?? {};
  const number = (value: bigint, member: string) =>
    checkRange(Number(value), `${what}.${member}`, 0, maxGpuMilli);
  if (memoryBytes !== undefined && memoryBytes > maxMemoryBytes) {
    throw millpondError("MILLPOND_E_INVALID", `${what}.memoryBytes is ${memoryBytes}, more than 1 PiB`);
  }
  return {
    ...(gpuMilli === undefined ? {} : { gpuMilli: number(gpuMilli, "gpuMilli") }),
    ...(computePercent === undefined ? {} : { computePercent: number(computePercent, "computePercent") }),
    ...(memoryBytes === undefined ? {} : { memoryBytes }),
  };
}

function checkUserLimits(limits: UserLimits | undefined): PutTenant["users"] {
  if (limits === undefined) {
    return undefined;
  }
  if (limits.users.length > maxUserLimits) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `userLimits has ${limits.users.length} users, more than ${maxUserLimits}`,
    );
  }
  const userLimits = new Map<string, Quota>();
  for (const { user, limit } of limits.users) {
    if (!isTokenName(user)) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `userLimits.users: ${quote(user)} is not the name of a token`,
      );
    }
    if (userLimits.has(user)) {
      throw millpondError("MILLPOND_E_INVALID", `userLimits.users: ${user} is given twice`);
    }
    userLimits.set(user, checkQuota(limit, `limit of ${user}`));
  }
  return { userLimit: checkQuota(limits.each, "userLimits.each"), userLimits };
}

function checkUsageBy(by: UsageBy): UsageKey {
  const key = usageKeys.get(by);
  if (key === undefined) {
    throw millpondError("MILLPOND_E_INVALID", `by is ${by}, which is not known`);
  }
  return key;
}

async function readQueues(pool: Pool) {
  return await pool.ledger.read((transaction) => {
    const { tree, claims } = observe(pool, transaction);
    return allQueues(transaction)
      .toSorted((a, b) => (a.name < b.name ? -1 : 1))
      .map(({ name, parent, weight, borrowing, guaranteed, limit }) => {
        const own = claims.filter(({ queue }) => tree.chain(queue).some((above) => above.name === name));
        return {
          name,
          parent,
          weight,
          borrowing: borrowingNumbers[borrowing],
          guaranteed: toQuotaMessage(guaranteed),
          limit: toQuotaMessage(limit),
          ...statusOf(tree.used(name), own),
        };
      });
  });
}

async function readTenants(pool: Pool) {
  return await pool.ledger.read((transaction) => {
    const { tree, claims } = observe(pool, transaction);
    const tenants = transaction.tenants.all();
    const all = tenants.some(({ name }) => name === defaultTenantName)
      ? tenants
      : [...tenants, { name: defaultTenantName, limit: {} }];
    return all
      .toSorted((a, b) => (a.name < b.name ? -1 : 1))
      .map((tenant) => {
        const { name, limit } = tenant;
        const own = claims.filter((claim) => claim.tenant === name);
        return {
          name,
          limit: toQuotaMessage(limit),
          userLimits: toUserLimits(tenant),
          ...statusOf(tree.usedByTenant(name), own),
          users: statusOfUsers(tree, tenant, own),
        };
      });
  });
}

function toUserLimits({ userLimit, userLimits = new Map() }: TenantSpec) {
  return {
    ...(userLimit === undefined ? {} : { each: toQuotaMessage(userLimit) }),
    users: [...userLimits]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([user, limit]) => ({ user, limit: toQuotaMessage(limit) })),
  };
}

function statusOfUsers(tree: QueueTree, tenant: TenantSpec, claims: readonly ClaimRecord[]) {
  const byUser = Map.groupBy(claims, ({ user }) => user);
  const names = new Set([...byUser.keys(), ...(tenant.userLimits?.keys() ?? [])]);
  return [...names].toSorted().map((user) => {
    const limit = limitOfUser(tenant, user);
    return {
      user,
      ...(Object.keys(limit).length === 0 ? {} : { limit: toQuotaMessage(limit) }),
      ...statusOf(tree.usedByUser({ tenant: tenant.name, user }), byUser.get(user) ?? []),
    };
  });
}

function observe(
  pool: Pool,
  transaction: Transaction,
): { readonly tree: QueueTree; readonly claims: readonly ClaimRecord[] } {
  const snapshot = pool.scheduler.queueSnapshot(transaction, pool.observe());
  const claims = transaction.allClaims().filter(({ endedAt }) => endedAt === null);
  return { tree: makeQueueTree(snapshot), claims };
}

function statusOf(used: Amount, claims: readonly ClaimRecord[]) {
  const count = (wanted: ClaimRecord["state"]) => claims.filter(({ state }) => state === wanted).length;
  return {
    used: {
      gpuMilli: BigInt(used.gpuMilli),
      computePercent: BigInt(used.computePercent),
      memoryBytes: used.memoryBytes,
    },
    waitingClaims: count("pending"),
    boundClaims: count("bound"),
  };
}

function toQuotaMessage({ gpuMilli, computePercent, memoryBytes }: Quota) {
  return {
    ...(gpuMilli === undefined ? {} : { gpuMilli: BigInt(gpuMilli) }),
    ...(computePercent === undefined ? {} : { computePercent: BigInt(computePercent) }),
    ...(memoryBytes === undefined ? {} : { memoryBytes }),
  };
}

function one<T extends { readonly name: string }>(items: readonly T[], name: string): T | undefined {
  return items.find((item) => item.name === name);
}
