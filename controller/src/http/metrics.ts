// SPDX-License-Identifier: Apache-2.0

import type { Device } from "@millpond/api";
import { type MetricSample, processMetrics, renderMetrics } from "@millpond/platform";
import { makeQueueTree } from "@millpond/scheduler";
import { toDevices } from "../rpc/to-proto.ts";
import { type Pool } from "../pool/pool.ts";
import type { Caller } from "../domain/caller.ts";
import { isLive } from "../domain/records.ts";
import type { LeaderElector } from "../ha/leader-election.ts";
import { allQueues } from "../scheduling/scheduler-view.ts";

/** Everything currently known about the pool, except for tenants that the caller may not see, in the Prometheus text format. */
export async function readMetrics(
  { pool, isLeading }: Pick<LeaderElector, "pool" | "isLeading">,
  version: string,
  caller: Pick<Caller, "role" | "tenant">,
): Promise<string> {
  const { counters } = pool;
  const own: MetricSample[] = [
    ...processMetrics(version),
    { name: "millpond_controller_leads", value: Number(isLeading) },
  ];
  if (!isLeading) {
    // Metrics of the pool are exported by the leader only, so that nothing is counted twice.
    return renderMetrics(own);
  }
  const samples: MetricSample[] = [
    ...own,
    ...nodeSamples(pool, caller),
    ...(await queueSamples(pool, (tenant) => caller.role === "admin" || tenant === caller.tenant)),
    ...[...counters.events].map(
      ([kind, value]): MetricSample => ({ name: "millpond_events_total", labels: { kind }, value }),
    ),
  ];
  return renderMetrics(samples, [counters.waits, counters.changes]);
}

function nodeSamples(pool: Pool, caller: Pick<Caller, "role" | "tenant">): MetricSample[] {
  const nodes = [...pool.ledger.nodes.values()];
  const ready = nodes.filter(({ name }) => pool.liveness.isReady(name)).length;
  const samples: MetricSample[] = [
    { name: "millpond_nodes", labels: { state: "ready" }, value: ready },
    { name: "millpond_nodes", labels: { state: "notReady" }, value: nodes.length - ready },
  ];
  for (const node of nodes) {
    const sessions = pool.liveness.of(node.name)?.sessions.size ?? 0;
    samples.push(
      { name: "millpond_node_cordoned", labels: { node: node.name }, value: Number(node.isCordoned) },
      { name: "millpond_sessions", labels: { node: node.name }, value: sessions },
    );
    for (const [position, device] of toDevices(pool, node, caller).entries()) {
      const labels = { node: node.name, device: String(device.index), uuid: device.uuid, model: device.name };
      const isHealthy = node.devices[position]?.isHealthy ?? false;
      samples.push(
        { name: "millpond_device_healthy", labels, value: Number(isHealthy) },
        { name: "millpond_device_memory_bytes", labels, value: Number(device.memoryBytes) },
        {
          name: "millpond_device_memory_allocated_bytes",
          labels,
          value: Number(device.allocatedMemoryBytes),
        },
        { name: "millpond_device_memory_used_bytes", labels, value: Number(device.usedMemoryBytes) },
        {
          name: "millpond_device_compute_allocated_ratio",
          labels,
          value: device.allocatedComputePercent / 100,
        },
        { name: "millpond_device_virtual_gpus", labels, value: device.virtualGpus },
        ...figureSamples(labels, device),
      );
    }
  }
  return samples;
}

/** Measurements of a device; an unknown value has no sample. */
function figureSamples(
  labels: Readonly<Record<string, string>>,
  { usedComputePercent, card }: Device,
): MetricSample[] {
  const figures: readonly (readonly [MetricSample["name"], number | undefined, number])[] = [
    ["millpond_device_compute_used_ratio", usedComputePercent, 100],
    ["millpond_device_temperature_celsius", card?.temperatureCelsius, 1],
    ["millpond_device_power_watts", card?.powerMilliwatts, 1000],
    ["millpond_device_power_limit_watts", card?.powerLimitMilliwatts, 1000],
    ["millpond_device_sm_clock_hertz", card?.smClockMhz, 1e-6],
    ["millpond_device_memory_clock_hertz", card?.memoryClockMhz, 1e-6],
    ["millpond_device_ecc_corrected_errors_total", card?.eccCorrectedErrors, 1],
    ["millpond_device_ecc_uncorrected_errors_total", card?.eccUncorrectedErrors, 1],
    ["millpond_device_remapped_rows", card?.remappedRows, 1],
    ["millpond_device_row_remap_pending", card?.pendingRowRemaps, 1],
    ["millpond_device_xids_total", card?.xids, 1],
  ];
  return figures.flatMap(([name, value, divisor]) =>
    value === undefined ? [] : [{ name, labels, value: value / divisor }],
  );
}

async function queueSamples(pool: Pool, sees: (tenant: string) => boolean): Promise<MetricSample[]> {
  return await pool.ledger.read((transaction) => {
    const tree = makeQueueTree(pool.scheduler.queueSnapshot(transaction, pool.observe()));
    const claims = Map.groupBy(transaction.allClaims().filter(isLive), ({ queue }) => queue);
    const samples: MetricSample[] = [];
    for (const { name: queue, guaranteed, limit } of allQueues(transaction)) {
      const own = claims.get(queue) ?? [];
      const pending = own.filter(({ state }) => state === "pending");
      const dormant = own.filter(({ state }) => state === "dormant").length;
      const bound = own.length - pending.length - dormant;
      const oldest = Math.min(
        transaction.now,
        ...pending.map(({ waitingSince }) => waitingSince ?? transaction.now),
      );
      samples.push(
        { name: "millpond_claims", labels: { queue, state: "pending" }, value: pending.length },
        { name: "millpond_claims", labels: { queue, state: "bound" }, value: bound },
        { name: "millpond_claims", labels: { queue, state: "dormant" }, value: dormant },
        { name: "millpond_oldest_pending_claim_seconds", labels: { queue }, value: transaction.now - oldest },
        { name: "millpond_queue_used_gpus", labels: { queue }, value: tree.used(queue).gpuMilli / 1000 },
        ...gpusOf("millpond_queue_guaranteed_gpus", { queue }, guaranteed.gpuMilli),
        ...gpusOf("millpond_queue_limit_gpus", { queue }, limit.gpuMilli),
      );
    }
    const tenants = new Map(transaction.tenants.all().map(({ name, limit }) => [name, limit.gpuMilli]));
    const names = new Set([...tenants.keys(), ...[...claims.values()].flat().map(({ tenant }) => tenant)]);
    for (const tenant of [...names].filter(sees)) {
      const { gpuMilli } = tree.usedByTenant(tenant);
      samples.push(
        { name: "millpond_tenant_used_gpus", labels: { tenant }, value: gpuMilli / 1000 },
        ...gpusOf("millpond_tenant_limit_gpus", { tenant }, tenants.get(tenant)),
      );
    }
    return samples;
  });
}

function gpusOf(
  name: MetricSample["name"],
  labels: Readonly<Record<string, string>>,
  gpuMilli: number | undefined,
): MetricSample[] {
  return gpuMilli === undefined ? [] : [{ name, labels, value: gpuMilli / 1000 }];
}
