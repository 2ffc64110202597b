// SPDX-License-Identifier: Apache-2.0

// Users' operations on claims.

import { randomBytes } from "node:crypto";
import { countOf, millpondError, quote, reason, refusal } from "@millpond/api";
import { currentCall } from "../state/audit.ts";
import { concludeNotice, endClaim } from "../reconcile/claim-lifecycle.ts";
import { seesAll, type Visibility } from "../auth/visibility.ts";
import { type ClaimRecord, isLive } from "../domain/records.ts";
import type { Transaction } from "../state/transaction.ts";
import { versionOf } from "../pool/claim-views.ts";
import { type Pool, type ResizeRefusal } from "../pool/pool.ts";
import {
  type AskedSizes,
  beginResize,
  sizesReason,
  hasSizes,
  refuseImpossible,
  resizeEvents,
} from "../reconcile/resize.ts";
import { refuseTooManyDormant, refuseTooManyWaiting } from "./claim-limits.ts";
import { toRequest } from "../domain/to-scheduler-claim.ts";
import { type ClaimSpec, defaultQueueName, defaultTenantName } from "../domain/claim-spec.ts";

/** Longest time that a watch call is held open. */
const longestWatchMs = 60_000;

/** How long a lazy claim keeps waiting after its program's last request for devices. */
const wakeSeconds = 15;

export interface CreateClaimOptions {
  /** Refuse the claim instead of queueing it. */
  readonly noWait: boolean;
}

/**
 * Creates a claim, and binds it if there is room.
 *
 * @throws MILLPOND_E_ALREADY_EXISTS, MILLPOND_E_IMPOSSIBLE, MILLPOND_E_NO_CAPACITY, MILLPOND_E_TOO_MANY_CLAIMS
 */
export async function createClaim(
  pool: Pool,
  spec: ClaimSpec,
  options: CreateClaimOptions,
): Promise<ClaimRecord> {
  const name = spec.name === "" ? `claim-${randomBytes(8).toString("hex")}` : spec.name;
  currentCall()?.name(`claim/${name}`);
  let isLeased = false;
  try {
    return await pool
      .mutate(
        (transaction) => {
          refuseDouble(transaction, name, spec.tenant);
          const refuseTooMany = spec.isLazy ? refuseTooManyDormant : refuseTooManyWaiting;
          refuseTooMany(transaction, spec.tenant);
          refuseUnknownQueue(transaction, spec);
          refuseOtherGang(transaction, spec);
          pool.leases.renew(name, spec.leaseSeconds);
          isLeased = true;
          transaction.addEvent("ClaimCreated", `claim/${name}`, sizesReason(spec, spec.owner));
          return transaction.putClaim({
            ...spec,
            name,
            gangRank: freeRank(transaction, spec.gang),
            arrival: transaction.revision,
            state: spec.isLazy ? "dormant" : "pending",
            reason: spec.isLazy ? reason("not-called-yet") : undefined,
            version: transaction.revision,
            createdAt: transaction.now,
            boundAt: null,
            endedAt: null,
            waitingSince: spec.isLazy ? null : transaction.now,
            preemptAt: null,
            requeues: 0,
          });
        },
        {},
        (transaction, decision) => {
          if (transaction.claim(name)?.state === "bound") {
            return;
          }
          refuseImpossible(transaction, pool.context(), toRequest(spec));
          if (options.noWait && !spec.isLazy) {
            throw refusal("MILLPOND_E_NO_CAPACITY", decision?.blocked.get(name)?.reason ?? reason("no-room"));
          }
        },
      )
      .then(() => requireClaim(pool, name));
  } catch (error) {
    if (isLeased) {
      pool.leases.forget(name);
    }
    throw error;
  }
}

export type ToldDevices = Pick<ClaimSpec, "toldModels" | "toldHost">;

export interface WaitClaimOptions {
  /** The version that the caller has seen. */
  readonly knownVersion: number;
  readonly timeoutMs: number;
  /** The caller needs the devices. */
  readonly wake: boolean;
  /** The properties of earlier devices that the claim's new devices must match. Default: none. */
  readonly told?: ToldDevices;
  readonly signal: AbortSignal;
  /** Which claims the caller may watch. Default: all. */
  readonly sees?: Visibility;
}

/**
 * Waits until a claim has another version, or until the timeout; holds its lease meanwhile. A lazy claim whose devices
 * the caller needs joins the queue.
 *
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_TOO_MANY_CLAIMS; the signal's reason when that is aborted.
 */
export async function waitClaim(pool: Pool, name: string, options: WaitClaimOptions): Promise<ClaimRecord> {
  const endMs = pool.clock.monotonicMs() + options.timeoutMs;
  let claim = requireClaim(pool, name, options.sees);
  renew(pool, claim);
  const isWaking = options.wake && claim.isLazy;
  if (isWaking) {
    await wakeClaim(pool, name, options.told);
    claim = requireClaim(pool, name, options.sees);
  }
  const releases = [pool.leases.hold(name), ...(isWaking ? [pool.wakes.hold(name)] : [])];
  try {
    while (isLive(claim) && versionOf(pool, claim) === options.knownVersion) {
      const wake = await pool.claimWatchers.wait(name, endMs - pool.clock.monotonicMs(), options.signal);
      if (wake === "aborted") {
        throw options.signal.reason;
      }
      claim = requireClaim(pool, name, options.sees);
      if (wake === "timeout") {
        break;
      }
    }
    renew(pool, claim);
    return claim;
  } finally {
    for (const release of releases) {
      release();
    }
    pool.touch(name);
  }
}

/** A program needs the devices of a lazy claim: from now on it waits, behind the claims that already wait. */
async function wakeClaim(pool: Pool, name: string, told?: ToldDevices): Promise<void> {
  pool.wakes.renew(name, wakeSeconds);
  if (pool.ledger.claims.get(name)?.state !== "dormant") {
    return;
  }
  await pool.mutate((transaction) => {
    const claim = transaction.claim(name);
    if (claim?.state !== "dormant") {
      return;
    }
    refuseTooManyWaiting(transaction, claim.tenant);
    const { revision: arrival, now: waitingSince } = transaction;
    transaction.putClaim({ ...claim, ...told, state: "pending", reason: undefined, arrival, waitingSince });
    transaction.addEvent("ClaimWoken", `claim/${name}`, reason("program-calls"));
  });
}

/**
 * Ends a claim. Does nothing if the claim has ended.
 *
 * @throws MILLPOND_E_NOT_FOUND
 */
export async function releaseClaim(pool: Pool, name: string, sees: Visibility = seesAll): Promise<void> {
  const { isAdministrator = false, user = "", why = "" } = currentCall()?.author ?? {};
  await pool.mutate((transaction) => {
    const claim = seen(transaction.claim(name), sees) ?? notFound(pool, name);
    if (isLive(claim)) {
      // The owner of a claim may be an administrator, as everybody is on a pool of `millpond up`.
      const isOther = isAdministrator && claim.user !== user;
      const released = reason(isOther ? "released-by-administrator" : "released-by-owner", {
        note: why === "" ? undefined : why,
      });
      endClaim(transaction, pool.observe(), claim, { state: "released", reason: released });
    }
  });
}

/**
 * Preempts a claim before its notice is over: it waits again, or ends if the notice said so.
 *
 * @throws MILLPOND_E_NOT_FOUND
 */
export async function yieldClaim(pool: Pool, name: string, sees: Visibility = seesAll): Promise<void> {
  await pool.mutate((transaction) => {
    const claim = seen(transaction.claim(name), sees) ?? notFound(pool, name);
    if (claim.preemptAt !== null) {
      concludeNotice(transaction, pool.observe(), claim);
    }
  });
}

export interface ResizeClaimOptions {
  /** Queue the claim if it must be placed again and there is no room, instead of refusing. */
  readonly wait: boolean;
  readonly signal: AbortSignal;
  /** Which claims the caller may resize. Default: all. */
  readonly sees?: Visibility;
}

/**
 * Changes a claim's request and allocation: completely, or not at all. Resolves when the outcome is known.
 *
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_CLAIM_ENDED, MILLPOND_E_IMPOSSIBLE and what `beginResize` throws;
 *   MILLPOND_E_IN_USE when a program has more in use; the signal's reason when that is aborted.
 */
export async function resizeClaim(
  pool: Pool,
  name: string,
  asked: AskedSizes,
  { wait, signal, sees = seesAll }: ResizeClaimOptions,
): Promise<ClaimRecord> {
  await pool.mutate(
    (transaction) => {
      const claim = seen(transaction.claim(name), sees) ?? notFound(pool, name);
      if (!isLive(claim)) {
        throw hasEnded(claim);
      }
      beginResize(transaction, pool.context(), claim, asked, { wait });
    },
    {},
    (transaction) => {
      const claim = transaction.claim(name);
      if (claim !== undefined && transaction.allocation(name) === undefined) {
        refuseImpossible(transaction, pool.context(), toRequest(claim));
      }
    },
  );
  pool.takeResizeRefusal(name);
  while (pool.ledger.allocations.ofClaim(name)?.resizing) {
    const wake = await pool.claimWatchers.wait(name, longestWatchMs, signal);
    if (wake === "aborted") {
      throw signal.reason;
    }
  }
  const claim = requireClaim(pool, name, sees);
  if (!hasSizes(claim, asked)) {
    throw keepsItsSize(claim, pool.takeResizeRefusal(name));
  }
  return claim;
}

function keepsItsSize({ name }: ClaimRecord, refused: ResizeRefusal | undefined) {
  if (refused?.kind === resizeEvents.unanswered) {
    return refusal(
      "MILLPOND_E_NODE_NOT_READY",
      reason("claim-keeps-size", { claim: name, reason: refused.reason }),
    );
  }
  const why = refused?.reason ?? reason("taken-back-meanwhile");
  return refusal("MILLPOND_E_IN_USE", reason("claim-keeps-size", { claim: name, reason: why }), {
    remedy: "Free memory in its programs, or request more than they use.",
  });
}

/**
 * Sets the priority of a claim and of the other members of its gang, which share one priority.
 *
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_CLAIM_ENDED
 */
export async function prioritizeClaim(
  pool: Pool,
  name: string,
  priority: number,
  sees: Visibility = seesAll,
): Promise<ClaimRecord> {
  await pool.mutate((transaction) => {
    const claim = seen(transaction.claim(name), sees) ?? notFound(pool, name);
    if (!isLive(claim)) {
      throw hasEnded(claim);
    }
    const all = claim.gang === "" ? [claim] : transaction.gangClaims(claim.gang);
    for (const each of all.filter((member) => member.priority !== priority)) {
      transaction.putClaim({ ...each, priority });
      const change = reason("priority", { from: each.priority, to: priority });
      transaction.addEvent("ClaimPrioritized", `claim/${each.name}`, change);
    }
  });
  return requireClaim(pool, name, sees);
}

/** @throws MILLPOND_E_NOT_FOUND also for a claim that the caller does not see */
export function requireClaim(pool: Pool, name: string, sees: Visibility = seesAll): ClaimRecord {
  return seen(pool.ledger.claims.get(name), sees) ?? notFound(pool, name);
}

function seen(claim: ClaimRecord | undefined, sees: Visibility): ClaimRecord | undefined {
  return claim !== undefined && sees(claim) ? claim : undefined;
}

function notFound(pool: Pool, name: string): never {
  if (pool.isRecovering) {
    throw millpondError(
      "MILLPOND_E_NOT_LEADER",
      `this controller's state was just restored, and it does not know yet whether there is a claim ${quote(name)}`,
      { remedy: "Try again in a few seconds, after agents have reported running sessions." },
    );
  }
  throw millpondError("MILLPOND_E_NOT_FOUND", `there is no claim ${quote(name)}`);
}

export function hasEnded({ name, reason: why }: ClaimRecord) {
  return refusal(
    "MILLPOND_E_CLAIM_ENDED",
    reason("claim-ended", { claim: name, reason: why ?? reason("not-planned-yet") }),
  );
}

/** Renews a claim's lease while the claim is live. */
export function renew(pool: Pool, claim: ClaimRecord): void {
  if (isLive(claim)) {
    pool.leases.renew(claim.name, claim.leaseSeconds);
  }
}

function refuseDouble(transaction: Transaction, name: string, tenant: string): void {
  const claim = transaction.claim(name);
  if (claim === undefined) {
    return;
  }
  const [held] = transaction.allocations.heldBy(name);
  // Another tenant's claim is disclosed only through the fact that its name is taken.
  if (isLive(claim) || (held !== undefined && claim.tenant !== tenant)) {
    throw millpondError("MILLPOND_E_ALREADY_EXISTS", `the claim ${name} already exists`);
  }
  if (held !== undefined) {
    throw millpondError(
      "MILLPOND_E_ALREADY_EXISTS",
      `the claim ${name} has ended, but its sessions on node ${held.node} have not`,
    );
  }
}

function refuseUnknownQueue(transaction: Transaction, { queue, tenant }: ClaimSpec): void {
  if (transaction.queues.get(queue) === undefined && queue !== defaultQueueName) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `there is no queue ${quote(queue)}`, {
      remedy: "List them with `millpond get queues`.",
    });
  }
  const child = transaction.queues.all().find(({ parent }) => parent === queue);
  if (child !== undefined) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the queue ${queue} is a group of queues: claims wait in those without children, such as ${child.name}`,
    );
  }
  if (transaction.tenants.get(tenant) === undefined && tenant !== defaultTenantName) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `there is no tenant ${quote(tenant)}`, {
      remedy: "List them with `millpond get tenants`.",
    });
  }
}

/** The members of a gang are placed together, so they must agree on its membership. */
function refuseOtherGang(transaction: Transaction, spec: ClaimSpec): void {
  if (spec.gang === "") {
    return;
  }
  const others = transaction.gangClaims(spec.gang);
  if (others.some(({ tenant }) => tenant !== spec.tenant)) {
    throw millpondError("MILLPOND_E_ALREADY_EXISTS", `the gang ${spec.gang} belongs to another tenant`, {
      remedy: "Choose another name.",
    });
  }
  if (others.length >= spec.gangSize) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the gang ${spec.gang} already has its ${countOf(spec.gangSize, "claim")}`,
    );
  }
  for (const member of [
    "gangSize",
    "isSameNode",
    "user",
    "queue",
    "priority",
    "isPreemptible",
    "serviceClass",
  ] as const) {
    const [other] = others;
    if (other !== undefined && other[member] !== spec[member]) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `${member} is ${spec[member]}, but ${other[member]} for ${other.name} of the same gang`,
      );
    }
  }
}

/** The lowest rank that no member of the gang has: the claim that replaces an ended member takes its rank. */
function freeRank(transaction: Transaction, gang: string): number {
  if (gang === "") {
    return 0;
  }
  const taken = new Set(transaction.gangClaims(gang).map(({ gangRank }) => gangRank));
  let rank = 0;
  while (taken.has(rank)) {
    rank += 1;
  }
  return rank;
}
