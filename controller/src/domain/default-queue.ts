// SPDX-License-Identifier: Apache-2.0

import type { QueueSpec } from "@millpond/scheduler";

/** The queue that exists without being created. */
export function makeDefaultQueue(name: string): QueueSpec {
  return { name, parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {} };
}
