// SPDX-License-Identifier: Apache-2.0

// Removes a node plugin's files from its host when Millpond leaves the cluster. An upgrade, a restart and a
// drain remove nothing: running containers use them.

import { existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { KubernetesObject } from "@kubernetes/client-node";
import { type Cluster, statusOf } from "../cluster/cluster.ts";

/**
 * Whether the plugin ends because its DaemonSet was deleted, and not in order to be replaced. False if the API server
 * does not answer: files that stay unnecessarily do less harm.
 *
 * @param name Name of the DaemonSet.
 */
export async function isUninstalled(
  cluster: Pick<Cluster, "objects">,
  namespace: string,
  name: string,
): Promise<boolean> {
  try {
    const kind = { group: "apps", version: "v1", plural: "daemonsets" };
    const object = (await cluster.objects.getNamespacedCustomObject({
      ...kind,
      namespace,
      name,
    })) as KubernetesObject;
    return object.metadata?.deletionTimestamp !== undefined;
  } catch (error) {
    // Its account and its rights are deleted together with the DaemonSet.
    return [401, 403, 404].includes(statusOf(error) ?? 0);
  }
}

/** Removes all versions of the client library, and the CDI specifications by which containers get it. */
export function removeTraces(paths: {
  readonly domain: string;
  readonly installDirectory: string;
  readonly cdiDirectory: string;
}): void {
  const { domain, installDirectory, cdiDirectory } = paths;
  const remove = (directory: string, isOurs: (name: string) => boolean): void => {
    if (!existsSync(directory)) return;
    for (const name of readdirSync(directory)) {
      if (isOurs(name)) rmSync(join(directory, name), { recursive: true, force: true });
    }
  };
  remove(cdiDirectory, (name) => name.startsWith(`${domain}-client-`) && /\.json(?:\.draft)?$/.test(name));
  remove(installDirectory, (name) => /^(?:[0-9a-f]{16}|\.draft-.*)$/.test(name));
}
