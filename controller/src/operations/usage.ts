// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import { askedGpuMilli, heldUsage } from "../reconcile/claim-lifecycle.ts";
import type { UsageRecord } from "../domain/records.ts";
import { activeSeconds as activeSecondsOf } from "../domain/observed-state.ts";
import type { Pool } from "../pool/pool.ts";

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

/**
 * Sums up records within a period. A record that is partly within it contributes the same fraction of its
 * activity.
 *
 * @throws MILLPOND_E_INVALID where there are more sums than an answer may have
 */
export function sumUsage(
  records: readonly UsageRecord[],
  period: { readonly from: number; readonly to: number },
  by: UsageKey,
): UsageSum[] {
  const members = commonMembers[by];
  const within = records.filter(
    ({ beganAt, endedAt }) => Math.min(endedAt, period.to) > Math.max(beganAt, period.from),
  );
  const groups = Map.groupBy(within, (record) => members.map((member) => record[member]).join("\n"));
  if (groups.size > maxSums) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the period has the usage of ${groups.size} ${by}s, and an answer has ${maxSums} at most`,
      { remedy: "Ask for a shorter period, or sum up by user." },
    );
  }
  return [...groups]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([, group]) => {
      const [first] = group;
      return first === undefined ? [] : [{ ...keyOf(first, members), ...sumGroup(group, period) }];
    });
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

function sumGroup(
  records: readonly UsageRecord[],
  { from, to }: { readonly from: number; readonly to: number },
): Omit<UsageSum, "tenant" | UsageKey> {
  const claims = new Set<string>();
  let waited = 0;
  let asked = 0;
  let granted = 0;
  let used = 0;
  for (const { kind, claim, gpuMilli, beganAt, endedAt, activeSeconds } of records) {
    const seconds = Math.min(endedAt, to) - Math.max(beganAt, from);
    claims.add(claim);
    const gpuSeconds = (seconds * gpuMilli) / 1000;
    asked += gpuSeconds;
    if (kind === "waited") {
      waited += seconds;
    } else {
      granted += gpuSeconds;
      used += gpuSeconds * (activeSeconds / (endedAt - beganAt));
    }
  }
  return {
    askedGpuSeconds: asked,
    grantedGpuSeconds: granted,
    usedGpuSeconds: used,
    wastedGpuSeconds: granted - used,
    waitedSeconds: waited,
    claims: claims.size,
  };
}
