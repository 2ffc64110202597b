// SPDX-License-Identifier: Apache-2.0

import { type Cluster, readVersion, unlessStatus } from "./cluster/cluster.ts";
import type { ResourceNames } from "./request/resource-names.ts";

/** How pods get their vGPUs: by ResourceClaims of Kubernetes' scheduler, or by a device plugin of their node. */
export type Allocation = "dra" | "device-plugin";

/** Whether the cluster has ResourceClaims: 1.34 or later, unless its API servers do not serve them. */
export async function hasResourceClaims(cluster: Cluster, { domain }: ResourceNames): Promise<boolean> {
  const { major, minor } = await readVersion(cluster);
  if (major === 1 && minor < 34) return false;
  const fieldSelector = `spec.driver=${domain}`;
  return (
    (await unlessStatus(cluster.resource.listResourceSlice({ fieldSelector, limit: 1 }), 404)) !== undefined
  );
}

/**
 * The requested way; `auto`: ResourceClaims if the cluster has them and lets several share a device. API servers
 * without that feature, as by default before 1.36, drop the field that allows sharing; a dry run detects this.
 */
export async function chooseAllocation(
  asked: Allocation | "auto",
  cluster: Cluster,
  names: ResourceNames,
): Promise<Allocation> {
  if (asked !== "auto") return asked;
  if (!(await hasResourceClaims(cluster, names))) return "device-plugin";
  const name = `${names.domain.replaceAll(".", "-")}-trial`;
  const body = {
    metadata: { name },
    spec: {
      driver: names.domain,
      pool: { name, generation: 1, resourceSliceCount: 1 },
      allNodes: true,
      devices: [{ name: "trial", allowMultipleAllocations: true }],
    },
  };
  const tried = await cluster.resource.createResourceSlice({ body, dryRun: "All" });
  return tried.spec.devices?.[0]?.allowMultipleAllocations === true ? "dra" : "device-plugin";
}
