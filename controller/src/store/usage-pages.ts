// SPDX-License-Identifier: Apache-2.0

import { integer, type Row, toUsage } from "./rows.ts";
import type { UsagePage, UsageQuery } from "../state/store.ts";

/** The most records of usage that are read at a time: as long as that takes, the controller does nothing else. */
export const usagePageSize = 1000;

/** The place behind which a page begins, for the columns `ended_at` and `id`. */
export function usagePlace({ from, after }: UsageQuery): [endedAt: number, id: number] {
  return after === undefined ? [from, Number.MAX_SAFE_INTEGER] : [after.endedAt, after.id];
}

/** `rows`: the next ones, at most `usagePageSize`, whenever they began. */
export function toUsagePage(rows: readonly Row[], { to }: UsageQuery): UsagePage {
  const last = rows.at(-1);
  const isLast = last === undefined || rows.length < usagePageSize;
  return {
    records: rows.map(toUsage).filter(({ beganAt }) => beganAt < to),
    next: isLast ? undefined : { endedAt: integer(last, "ended_at"), id: integer(last, "id") },
  };
}
