// SPDX-License-Identifier: Apache-2.0

import { type DcgmSample, type MetricLabels, renderDcgmMetrics } from "@millpond/platform";
import type { Caller } from "../domain/caller.ts";
import type { AllocationRecord, ClaimRecord, NodeRecord } from "../domain/records.ts";
import type { LeaderElector } from "../ha/leader-election.ts";
import type { Pool } from "../pool/pool.ts";

const mebibyte = 1 << 20;

/**
 * Limits and usage of devices by the claims that the caller may see, under the names of DCGM. Followers export nothing,
 * so that nothing is counted twice.
 */
export function readDcgmMetrics(
  { pool, isLeading }: Pick<LeaderElector, "pool" | "isLeading">,
  caller: Pick<Caller, "role" | "tenant">,
): string {
  const samples: DcgmSample[] = [];
  for (const allocation of isLeading ? pool.ledger.allocations.byEpoch.values() : []) {
    const claim = pool.ledger.claims.get(allocation.claim);
    const node = pool.ledger.nodes.get(allocation.node);
    const isSeen = caller.role === "admin" || claim?.tenant === caller.tenant;
    // A released allocation grants nothing.
    if (claim !== undefined && node !== undefined && isSeen && allocation.releasedRevision === null) {
      samples.push(...samplesOf(pool, node, claim, allocation));
    }
  }
  return renderDcgmMetrics(samples);
}

function samplesOf(
  pool: Pool,
  node: NodeRecord,
  claim: ClaimRecord,
  allocation: AllocationRecord,
): DcgmSample[] {
  const sessions = [...(pool.liveness.of(node.name)?.sessions.values() ?? [])].filter(
    ({ epoch }) => epoch === allocation.epoch,
  );
  return allocation.devices.flatMap(({ uuid, memoryBytes }): DcgmSample[] => {
    const labels = labelsOf(node, claim, uuid);
    const used = sessions.reduce((sum, { memoryUsed }) => sum + (memoryUsed.get(uuid) ?? 0n), 0n);
    const free = memoryBytes > used ? memoryBytes - used : 0n;
    return [
      { name: "DCGM_FI_DEV_FB_TOTAL", labels, value: Number(memoryBytes) / mebibyte },
      { name: "DCGM_FI_DEV_FB_FREE", labels, value: Number(free) / mebibyte },
      ...sessions.flatMap((session): DcgmSample[] => {
        const own = {
          ...labels,
          session: session.id,
          pid: String(session.clientPid || (session.client?.pid ?? 0)),
          program: session.program || (session.client?.program ?? ""),
          client_host: session.clientHost || (session.client?.host ?? ""),
        };
        const share = session.computeUsed.get(uuid);
        return [
          {
            name: "DCGM_FI_DEV_FB_USED",
            labels: own,
            value: Number(session.memoryUsed.get(uuid) ?? 0n) / mebibyte,
          },
          ...(share === undefined
            ? []
            : ([
                { name: "DCGM_FI_DEV_GPU_UTIL", labels: own, value: share },
                { name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels: own, value: share / 100 },
              ] as const)),
        ];
      }),
    ];
  });
}

function labelsOf(
  node: NodeRecord,
  { name, tenant, queue, labels }: ClaimRecord,
  uuid: string,
): MetricLabels {
  const device = node.devices.find((each) => each.uuid === uuid);
  const index = String(device?.index ?? "");
  const namespace = labels["kubernetes/namespace"];
  const pod = labels["kubernetes/pod"];
  return {
    gpu: index,
    UUID: uuid,
    pci_bus_id: device?.pciBusId ?? "",
    device: `nvidia${index}`,
    modelName: device?.name ?? "",
    Hostname: node.hostname,
    DCGM_FI_DRIVER_VERSION: device?.driverVersion ?? "",
    claim: name,
    tenant,
    queue,
    ...(namespace === undefined ? {} : { namespace }),
    ...(pod === undefined ? {} : { pod }),
  };
}
