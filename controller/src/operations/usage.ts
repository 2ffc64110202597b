// SPDX-License-Identifier: Apache-2.0

import { amountOn } from "@millpond/scheduler";
import { askedGpuMilli } from "../reconcile/claim-lifecycle.ts";
import { toStatement } from "../domain/to-scheduler-holding.ts";
import type { UsageRecord } from "../domain/records.ts";
import { activeSeconds as activeSecondsOf } from "../domain/observed-state.ts";
import type { Pool } from "../pool/pool.ts";

/** What a tenant had in a queue within a period, in GPU-seconds and seconds. */
export interface UsageSum {
  readonly tenant: string;
  readonly queue: string;
  readonly askedGpuSeconds: number;
  readonly grantedGpuSeconds: number;
  readonly usedGpuSeconds: number;
  readonly wastedGpuSeconds: number;
  readonly waitedSeconds: number;
  readonly claims: number;
}

/** The times that are not over yet, as if they ended now. */
export function currentUsage(pool: Pool, now: number): UsageRecord[] {
  const records: UsageRecord[] = [];
  for (const {
    epoch,
    claim: name,
    node,
    grantedAt,
    releasedRevision,
    ...rest
  } of pool.ledger.allocations.byEpoch.values()) {
    const claim = pool.ledger.claims.get(name);
    if (releasedRevision !== null || claim === undefined) {
      continue;
    }
    const { tenant, queue } = claim;
    const record = pool.ledger.nodes.get(node);
    const statement = toStatement({ epoch, claim: name, node, grantedAt, releasedRevision, ...rest }, record);
    const { gpuMilli } = amountOn(record, statement);
    const activeSeconds = Math.min(activeSecondsOf(pool.observe(), epoch), Math.max(0, now - grantedAt));
    records.push({
      kind: "held",
      claim: name,
      tenant,
      queue,
      gpuMilli,
      beganAt: grantedAt,
      endedAt: now,
      activeSeconds,
    });
  }
  for (const name of pool.ledger.pending) {
    const claim = pool.ledger.claims.get(name);
    if (claim !== undefined) {
      const { tenant, queue, waitingSince } = claim;
      const gpuMilli = askedGpuMilli(claim);
      const beganAt = waitingSince ?? now;
      records.push({
        kind: "waited",
        claim: name,
        tenant,
        queue,
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
 * Sums records up, as far as they lie within a period. Of one that lies in it in part, the same part of its activity
 * counts.
 */
export function sumUsage(
  records: readonly UsageRecord[],
  period: { readonly from: number; readonly to: number },
): UsageSum[] {
  const groups = Map.groupBy(records, ({ tenant, queue }) => `${tenant}\n${queue}`);
  return [...groups.entries()]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, group]) => sumGroup(group, period))
    .filter((sum) => sum !== undefined);
}

function sumGroup(
  records: readonly UsageRecord[],
  { from, to }: { readonly from: number; readonly to: number },
): UsageSum | undefined {
  const claims = new Set<string>();
  let waited = 0;
  let asked = 0;
  let granted = 0;
  let used = 0;
  for (const { kind, claim, gpuMilli, beganAt, endedAt, activeSeconds } of records) {
    const seconds = Math.min(endedAt, to) - Math.max(beganAt, from);
    if (seconds <= 0) {
      continue;
    }
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
  const [first] = records;
  if (first === undefined || claims.size === 0) {
    return undefined;
  }
  return {
    tenant: first.tenant,
    queue: first.queue,
    askedGpuSeconds: asked,
    grantedGpuSeconds: granted,
    usedGpuSeconds: used,
    wastedGpuSeconds: granted - used,
    waitedSeconds: waited,
    claims: claims.size,
  };
}
