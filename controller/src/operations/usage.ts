// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import { askedGpuMilli, heldUsage } from "../reconcile/claim-lifecycle.ts";
import type { UsageRecord } from "../domain/records.ts";
import { activeSeconds as activeSecondsOf } from "../domain/observed-state.ts";
import type { Pool } from "../pool/pool.ts";
import type { Store, UsagePage, UsagePlace } from "../state/store.ts";

/** The member by which usage is grouped, in addition to the tenant. */
export type UsageKey = "queue" | "user" | "claim" | "model";

/** The members that the records of a sum have in common; those that differ are empty. */
const commonMembers = {
  queue: ["tenant", "queue"],
  user: ["tenant", "user"],
  claim: ["tenant", "queue", "user", "claim"],
  model: ["tenant", "model"],
} as const;

/** The most sums in an answer. */
const maxSums = 10_000;

/** Usage of a group of claims within a period, in GPU-seconds and seconds. */
export interface UsageSum {
  readonly tenant: string;
  /** Empty, like the next three, when the group has none. */
  readonly queue: string;
  readonly user: string;
  readonly claim: string;
  readonly model: string;
  readonly askedGpuSeconds: number;
  readonly grantedGpuSeconds: number;
  readonly usedGpuSeconds: number;
  readonly wastedGpuSeconds: number;
  readonly waitedSeconds: number;
  readonly claims: number;
}

/** Intervals that are still open, as if they ended now. */
export function currentUsage(pool: Pool, now: number): UsageRecord[] {
  const records: UsageRecord[] = [];
  for (const allocation of pool.ledger.allocations.byEpoch.values()) {
    const claim = pool.ledger.claims.get(allocation.claim);
    if (allocation.releasedRevision === null && claim !== undefined) {
      const node = pool.ledger.nodes.get(allocation.node);
      const seconds = activeSecondsOf(pool.observe(), allocation.epoch);
      records.push(...heldUsage(claim, { allocation, node, now, seconds }));
    }
  }
  for (const name of pool.ledger.pending) {
    const claim = pool.ledger.claims.get(name);
    if (claim !== undefined) {
      const { tenant, queue, user, waitingSince } = claim;
      const gpuMilli = askedGpuMilli(claim);
      const beganAt = waitingSince ?? now;
      records.push({
        kind: "waited",
        claim: name,
        tenant,
        queue,
        user,
        model: "",
        gpuMilli,
        beganAt,
        endedAt: now,
        activeSeconds: 0,
      });
    }
  }
  return records;
}

/** The stored records of a period, page by page. */
export async function* usagePages(
  store: Pick<Store, "listUsage">,
  period: { readonly from: number; readonly to: number },
): AsyncGenerator<readonly UsageRecord[]> {
  let after: UsagePlace | undefined;
  do {
    const page: UsagePage = await store.listUsage({ ...period, after });
    yield page.records;
    after = page.next;
  } while (after !== undefined);
}

/** The amounts of a group, as far as they were added. */
interface Amounts {
  readonly key: Pick<UsageSum, "tenant" | UsageKey>;
  readonly claims: Set<string>;
  waited: number;
  asked: number;
  granted: number;
  used: number;
}

/**
 * Sums up records within a period. A record that is partly within it contributes the same fraction of its
 * activity.
 */
export class UsageSums {
  readonly #period: { readonly from: number; readonly to: number };
  readonly #by: UsageKey;
  readonly #groups = new Map<string, Amounts>();

  constructor(period: { readonly from: number; readonly to: number }, by: UsageKey) {
    this.#period = period;
    this.#by = by;
  }

  /** @throws MILLPOND_E_INVALID where there are more sums than an answer may have */
  add(record: UsageRecord): void {
    const { kind, claim, gpuMilli, beganAt, endedAt, activeSeconds } = record;
    const seconds = Math.min(endedAt, this.#period.to) - Math.max(beganAt, this.#period.from);
    if (seconds <= 0) return;
    const amounts = this.#groupOf(record);
    amounts.claims.add(claim);
    const gpuSeconds = (seconds * gpuMilli) / 1000;
    amounts.asked += gpuSeconds;
    if (kind === "waited") {
      amounts.waited += seconds;
    } else {
      amounts.granted += gpuSeconds;
      amounts.used += gpuSeconds * (activeSeconds / (endedAt - beganAt));
    }
  }

  toList(): UsageSum[] {
    return [...this.#groups]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([, { key, claims, waited, asked, granted, used }]) => ({
        ...key,
        askedGpuSeconds: asked,
        grantedGpuSeconds: granted,
        usedGpuSeconds: used,
        wastedGpuSeconds: granted - used,
        waitedSeconds: waited,
        claims: claims.size,
      }));
  }

  #groupOf(record: UsageRecord): Amounts {
    const members = commonMembers[this.#by];
    const name = members.map((member) => record[member]).join("\n");
    const known = this.#groups.get(name);
    if (known !== undefined) return known;
    if (this.#groups.size === maxSums) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `the period has the usage of more than ${maxSums} ${this.#by}s, and an answer has that many at most`,
        { remedy: "Ask for a shorter period, or sum up by user." },
      );
    }
    const made = {
      key: keyOf(record, members),
      claims: new Set<string>(),
      waited: 0,
      asked: 0,
      granted: 0,
      used: 0,
    };
    this.#groups.set(name, made);
    return made;
  }
}

function keyOf(
  record: UsageRecord,
  members: readonly ("tenant" | UsageKey)[],
): Pick<UsageSum, "tenant" | UsageKey> {
  const own = (member: "tenant" | UsageKey) => (members.includes(member) ? record[member] : "");
  return {
    tenant: own("tenant"),
    queue: own("queue"),
    user: own("user"),
    claim: own("claim"),
    model: own("model"),
  };
}
