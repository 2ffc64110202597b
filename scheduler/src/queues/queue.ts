// SPDX-License-Identifier: Apache-2.0

import type { Quota } from "./quota.ts";

/** Whose claims may have more than the queue's guaranteed quota while others leave it idle. */
export type Borrowing = "any" | "preemptible" | "none";

/** Where claims wait, or a group of such queues. */
export interface QueueSpec {
  /** Unique. */
  readonly name: string;
  /** Empty: none. */
  readonly parent: string;
  /** Share beside its siblings in what is beyond the guarantees, 1 to 10000. */
  readonly weight: number;
  readonly borrowing: Borrowing;
  /** What it gets before others get more than theirs. */
  readonly guaranteed: Quota;
  /** What all its claims together may have at most. */
  readonly limit: Quota;
}

/** Who is charged. */
export interface TenantSpec {
  /** Unique. */
  readonly name: string;
  readonly limit: Quota;
}
