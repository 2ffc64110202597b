// SPDX-License-Identifier: Apache-2.0

import {
  Borrowing,
  maxMemoryBytes,
  millpondError,
  parseName,
  type Queue,
  type QueueService,
  type Quota as QuotaMessage,
} from "@millpond/api";
import { type Amount, makeQueueTree, type QueueSpec, type QueueTree, type Quota } from "@millpond/scheduler";
import type { ServiceMethods } from "./service-methods.ts";
import type { ClaimRecord } from "../domain/records.ts";
import type { Transaction } from "../state/transaction.ts";
import { callerOf } from "../auth/visibility.ts";
import { unixSeconds } from "../timers/clock.ts";
import type { Pool } from "../pool/pool.ts";
import { deleteQueue, deleteTenant, putQueue, putTenant } from "../operations/queues.ts";
import { allQueues } from "../scheduling/scheduler-view.ts";
import { defaultTenantName } from "../domain/claim-spec.ts";
import type { Store } from "../state/store.ts";
import { currentUsage, sumUsage } from "../operations/usage.ts";
import { checkRange } from "../domain/validate-claim.ts";

const maxWeight = 10_000;
/** A million GPUs. */
const maxGpuMilli = 1_000_000_000;

const borrowings = new Map<number, QueueSpec["borrowing"]>([
  [Borrowing.UNSPECIFIED, "any"],
  [Borrowing.ANY, "any"],
  [Borrowing.PREEMPTIBLE, "preemptible"],
  [Borrowing.NONE, "none"],
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
      const spec = { name: parseName(tenant.name, "tenant"), limit: checkQuota(tenant.limit, "limit") };
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
      const records = [...(await store.listUsage({ from, to })), ...currentUsage(pool, now)].filter(
        (record) => tenant === "" || record.tenant === tenant,
      );
      return { usage: sumUsage(records, { from, to }), from: BigInt(from), to: BigInt(to) };
    },
  };
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
    const tenants = transaction.allTenants();
    const all = tenants.some(({ name }) => name === defaultTenantName)
      ? tenants
      : [...tenants, { name: defaultTenantName, limit: {} }];
    return all
      .toSorted((a, b) => (a.name < b.name ? -1 : 1))
      .map(({ name, limit }) => {
        const own = claims.filter(({ tenant }) => tenant === name);
        return { name, limit: toQuotaMessage(limit), ...statusOf(tree.usedByTenant(name), own) };
      });
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
