// SPDX-License-Identifier: Apache-2.0

import type { Quota } from "./quota.ts";

/** Which claims of a queue may use more than its guaranteed quota while other queues leave capacity idle. */
export type Borrowing = "any" | "preemptible" | "none";

/** A queue in which claims wait, or a group of queues. */
export interface QueueSpec {
  /** Unique. */
  readonly name: string;
  /** Empty: none. */
  readonly parent: string;
  /** Weight among its siblings for capacity beyond the guarantees, 1 to 10000. */
  readonly weight: number;
  readonly borrowing: Borrowing;
  /** Served before any queue gets more than its own guarantee. */
  readonly guaranteed: Quota;
  /** Upper bound for all its claims together. */
  readonly limit: Quota;
}

/** The tenant that usage is charged to. */
export interface TenantSpec {
  /** Unique. */
  readonly name: string;
  readonly limit: Quota;
  /** Upper bound for the claims of each user that `userLimits` does not name. Absent: no bound. */
  readonly userLimit?: Quota;
  /** Upper bounds for the claims of single users, by name. */
  readonly userLimits?: ReadonlyMap<string, Quota>;
}

/** The upper bound for a user of the tenant. Claims without a known user, from earlier releases, have none. */
export function limitOfUser(tenant: TenantSpec | undefined, user: string): Quota {
  return user === "" ? {} : (tenant?.userLimits?.get(user) ?? tenant?.userLimit ?? {});
}
