// SPDX-License-Identifier: Apache-2.0

// Operations on queues and tenants.

import { isDeepStrictEqual } from "node:util";
import { formatExcess, millpondError, quote, reason, type Reason } from "@millpond/api";
import { excessOf, type QueueSpec, type TenantSpec } from "@millpond/scheduler";
import type { Transaction } from "../state/transaction.ts";
import { type Pool } from "../pool/pool.ts";
import { type ClaimRecord, isLive } from "../domain/records.ts";
import { defaultQueueName, defaultTenantName } from "../domain/claim-spec.ts";
import { makeTenantSpec } from "../domain/tenant-spec.ts";

const maxQueues = 1000;
const maxTenants = 10_000;
const maxDepth = 8;

export interface PutOptions {
  /** Refuse if the queue exists. */
  readonly createOnly: boolean;
  /** Refuse if the queue does not exist. */
  readonly changeOnly: boolean;
}

/** @throws MILLPOND_E_ALREADY_EXISTS, MILLPOND_E_NOT_FOUND, MILLPOND_E_INVALID, MILLPOND_E_IN_USE */
export async function putQueue(pool: Pool, queue: QueueSpec, options: PutOptions): Promise<void> {
  await pool.mutate((transaction) => {
    const before = transaction.queues.get(queue.name);
    refuse("queue", queue.name, before !== undefined, options);
    if (before === undefined && transaction.queues.all().length >= maxQueues) {
      throw millpondError("MILLPOND_E_INVALID", `the pool already has ${maxQueues} queues`);
    }
    const excess = excessOf(
      { gpuMilli: 0, computePercent: 0, memoryBytes: 0n, ...queue.guaranteed },
      queue.limit,
    );
    if (excess !== undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `queue ${queue.name} is guaranteed more than its limit: ${formatExcess(excess)}`,
      );
    }
    refuseParent(transaction, queue);
    if (isDeepStrictEqual(before, queue)) {
      return;
    }
    transaction.queues.set(queue.name, queue);
    const what = before === undefined ? "QueueCreated" : "QueueChanged";
    transaction.addEvent(what, `queue/${queue.name}`, settingsOf(queue));
  });
}

/** @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_IN_USE */
export async function deleteQueue(pool: Pool, name: string): Promise<void> {
  await pool.mutate((transaction) => {
    if (transaction.queues.get(name) === undefined) {
      throw name === defaultQueueName ? isDefault("queue") : notFound("queue", name);
    }
    const child = transaction.queues.all().find(({ parent }) => parent === name);
    if (child !== undefined) {
      throw millpondError("MILLPOND_E_IN_USE", `the queue ${name} has children, such as ${child.name}`);
    }
    if (name !== defaultQueueName) {
      refuseClaims(transaction, `the queue ${name}`, ({ queue }) => queue === name);
    }
    transaction.queues.delete(name);
    transaction.addEvent("QueueDeleted", `queue/${name}`, reason("deleted"));
  });
}

/** The limits of users; limits that are not given stay unchanged. */
export type PutTenant = Pick<TenantSpec, "name" | "limit"> & {
  readonly users: Required<Pick<TenantSpec, "userLimit" | "userLimits">> | undefined;
};

/** @throws MILLPOND_E_ALREADY_EXISTS, MILLPOND_E_NOT_FOUND, MILLPOND_E_INVALID */
export async function putTenant(
  pool: Pool,
  { name, limit, users }: PutTenant,
  options: PutOptions,
): Promise<void> {
  await pool.mutate((transaction) => {
    const before = transaction.tenants.get(name);
    const { userLimit = {}, userLimits = new Map() } = users ?? before ?? {};
    const tenant = makeTenantSpec({ name, limit, userLimit, userLimits });
    refuse("tenant", tenant.name, before !== undefined, options);
    if (before === undefined && transaction.tenants.all().length >= maxTenants) {
      throw millpondError("MILLPOND_E_INVALID", `the pool already has ${maxTenants} tenants`);
    }
    if (isDeepStrictEqual(before, tenant)) {
      return;
    }
    transaction.tenants.set(tenant.name, tenant);
    const what = before === undefined ? "TenantCreated" : "TenantChanged";
    transaction.addEvent(
      what,
      `tenant/${tenant.name}`,
      reason("tenant-settings", {
        limit: tenant.limit,
        userLimit: tenant.userLimit,
        ownLimits: userLimits.size === 0 ? undefined : userLimits.size,
      }),
    );
  });
}

/** @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_IN_USE */
export async function deleteTenant(pool: Pool, name: string): Promise<void> {
  await pool.mutate((transaction) => {
    if (transaction.tenants.get(name) === undefined) {
      throw name === defaultTenantName ? isDefault("tenant") : notFound("tenant", name);
    }
    if (name !== defaultTenantName) {
      refuseClaims(transaction, `the tenant ${name}`, ({ tenant }) => tenant === name);
      // Otherwise they would be valid for a later tenant with the same name.
      const token = transaction.tokens.all().find(({ tenant }) => tenant === name);
      if (token !== undefined) {
        throw millpondError("MILLPOND_E_IN_USE", `the tenant ${name} has tokens, such as ${token.name}`);
      }
    }
    transaction.tenants.delete(name);
    transaction.addEvent("TenantDeleted", `tenant/${name}`, reason("deleted"));
  });
}

function refuse(kind: string, name: string, isThere: boolean, { createOnly, changeOnly }: PutOptions): void {
  if (isThere && createOnly) {
    throw millpondError("MILLPOND_E_ALREADY_EXISTS", `the ${kind} ${name} already exists`, {
      remedy: `Change it with \`millpond ${kind} change ${name}\`.`,
    });
  }
  if (!isThere && changeOnly && name !== "default") {
    throw notFound(kind, name);
  }
}

function notFound(kind: string, name: string) {
  return millpondError("MILLPOND_E_NOT_FOUND", `there is no ${kind} ${quote(name)}`, {
    remedy: `List them with \`millpond get ${kind}s\`.`,
  });
}

function refuseParent(transaction: Transaction, { name, parent }: QueueSpec): void {
  if (parent === "") {
    return;
  }
  if (parent !== defaultQueueName && transaction.queues.get(parent) === undefined) {
    throw notFound("queue", parent);
  }
  let depth = 1;
  for (let above = parent; above !== ""; above = transaction.queues.get(above)?.parent ?? "") {
    depth += 1;
    if (above === name || depth > maxDepth) {
      const why =
        above === name
          ? `${name} would be its own ancestor`
          : `queues can be nested ${maxDepth} deep at most`;
      throw millpondError("MILLPOND_E_INVALID", `the queue ${name} cannot be a part of ${parent}: ${why}`);
    }
  }
  refuseClaims(transaction, `the queue ${parent}`, ({ queue }) => queue === parent);
}

function refuseClaims(
  transaction: Transaction,
  what: string,
  isMeant: (claim: ClaimRecord) => boolean,
): void {
  const claim = transaction.allClaims().find((each) => isLive(each) && isMeant(each));
  if (claim !== undefined) {
    throw millpondError("MILLPOND_E_IN_USE", `${what} has claims, such as ${claim.name}`);
  }
}

function settingsOf({ parent, weight, borrowing, guaranteed, limit }: QueueSpec): Reason {
  return reason("queue-settings", {
    parent: parent === "" ? undefined : parent,
    weight,
    borrowing,
    guaranteed,
    limit,
  });
}

/** Default settings cannot be deleted. */
function isDefault(kind: "queue" | "tenant") {
  return millpondError("MILLPOND_E_INVALID", `the ${kind} default is always there and cannot be deleted`, {
    remedy: `Change it with \`millpond ${kind} change default\`; deleting it resets it to its initial settings.`,
  });
}
