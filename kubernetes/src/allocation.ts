// SPDX-License-Identifier: Apache-2.0

import type { ClusterVersion } from "./cluster/cluster.ts";

/** How pods get their vGPUs: by ResourceClaims of Kubernetes' scheduler, or by a device plugin of their node. */
export type Allocation = "dra" | "device-plugin";

/** The requested way; `auto`: ResourceClaims if the version certainly supports them, 1.34 or later. */
export function chooseAllocation(asked: Allocation | "auto", { major, minor }: ClusterVersion): Allocation {
  if (asked !== "auto") return asked;
  return major > 1 || minor >= 34 ? "dra" : "device-plugin";
}
