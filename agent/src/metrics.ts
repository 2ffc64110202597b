// SPDX-License-Identifier: Apache-2.0

import type { MetricSample } from "@millpond/platform";
import type { DiscoveredDevice } from "./devices/devices.ts";
import type { WorkerPool } from "./workers/worker-pool.ts";

/** Metrics of an agent's workers and devices. */
export function agentMetrics(
  pool: Pick<WorkerPool, "workers" | "sessions">,
  devices: readonly DiscoveredDevice[],
  isHealthy: (uuid: string) => boolean,
): MetricSample[] {
  const phases = Map.groupBy(pool.workers, ({ phase }) => phase);
  return [
    ...[...phases].map(
      ([phase, workers]): MetricSample => ({
        name: "millpond_agent_workers",
        labels: { phase },
        value: workers.length,
      }),
    ),
    ...devices.map(
      ({ description: { uuid } }): MetricSample => ({
        name: "millpond_agent_device_healthy",
        labels: { uuid },
        value: Number(isHealthy(uuid)),
      }),
    ),
    ...pool.sessions.flatMap(({ session: { session, claim, devices: granted }, figures }): MetricSample[] => {
      const labels = { claim, session };
      return [
        { name: "millpond_agent_session_commands_total", labels, value: figures.commands },
        { name: "millpond_agent_session_launches_total", labels, value: figures.launches },
        ...granted.map(
          ({ uuid }): MetricSample => ({
            name: "millpond_agent_session_memory_used_bytes",
            labels: { ...labels, uuid },
            value: figures.memoryUsedBytes.get(uuid) ?? 0,
          }),
        ),
        ...granted.flatMap(({ uuid, computePercent, serviceClass }): MetricSample[] => [
          {
            name: "millpond_agent_session_compute_seconds_total",
            labels: { ...labels, uuid },
            value: (figures.computeUsedNs.get(uuid) ?? 0) / 1e9,
          },
          {
            name: "millpond_agent_session_compute_share",
            labels: { ...labels, uuid, class: serviceClass },
            value: computePercent / 100,
          },
        ]),
      ];
    }),
  ];
}
