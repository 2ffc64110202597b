// SPDX-License-Identifier: Apache-2.0

// The metrics of controllers and agents for Prometheus: one table, and its text format.

export interface MetricDefinition {
  /** Which part of Millpond has the metric. */
  readonly part: "controller" | "agent" | "both";
  readonly type: "gauge" | "counter" | "histogram";
  /** One sentence without a full stop. */
  readonly help: string;
  readonly labels: readonly string[];
  /** Upper bounds of a histogram's buckets, ascending. */
  readonly buckets?: readonly number[];
}

const onDevice = ["node", "device", "uuid", "model"] as const;
const commitBuckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5] as const;
/** Most claims are bound immediately, within the second in which they are created. */
const waitBuckets = [0, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400] as const;

/**
 * Every metric. `docs/reference/metrics.md` is generated from this table, and the dashboard may use no other. As is usual for
 * Prometheus, units are in the names: seconds, bytes, ratios from 0 to 1; GPUs count parts of devices.
 */
export const metricTable = {
  millpond_build_info: {
    part: "both",
    type: "gauge",
    help: "Version of the software; always 1",
    labels: ["version"],
  },
  process_start_time_seconds: {
    part: "both",
    type: "gauge",
    help: "When the process started, Unix seconds",
    labels: [],
  },
  process_resident_memory_bytes: { part: "both", type: "gauge", help: "Memory of the process", labels: [] },
  process_cpu_seconds_total: {
    part: "both",
    type: "counter",
    help: "CPU time of the process",
    labels: [],
  },

  millpond_controller_leads: {
    part: "controller",
    type: "gauge",
    help: "1 if this controller is the leader, else 0; only the leader exports metrics of the pool",
    labels: [],
  },
  millpond_nodes: {
    part: "controller",
    type: "gauge",
    help: "Nodes by state: ready, notReady",
    labels: ["state"],
  },
  millpond_node_cordoned: {
    part: "controller",
    type: "gauge",
    help: "1 if the node is cordoned, else 0",
    labels: ["node"],
  },
  millpond_device_healthy: {
    part: "controller",
    type: "gauge",
    help: "1 if the device is healthy, else 0",
    labels: onDevice,
  },
  millpond_device_memory_bytes: {
    part: "controller",
    type: "gauge",
    help: "Memory of the device",
    labels: onDevice,
  },
  millpond_device_memory_allocated_bytes: {
    part: "controller",
    type: "gauge",
    help: "Memory of the device allocated to claims",
    labels: onDevice,
  },
  millpond_device_memory_used_bytes: {
    part: "controller",
    type: "gauge",
    help: "Memory of the device in use by sessions",
    labels: onDevice,
  },
  millpond_device_compute_allocated_ratio: {
    part: "controller",
    type: "gauge",
    help: "Compute of the device allocated to claims, 0 to 1",
    labels: onDevice,
  },
  millpond_device_compute_used_ratio: {
    part: "controller",
    type: "gauge",
    help: "Compute of the device used by sessions over the last seconds, 0 to 1; absent where unknown",
    labels: onDevice,
  },
  millpond_device_temperature_celsius: {
    part: "controller",
    type: "gauge",
    help: "Temperature of the card, where its driver reports it",
    labels: onDevice,
  },
  millpond_device_power_watts: {
    part: "controller",
    type: "gauge",
    help: "Power that the card draws, where its driver reports it",
    labels: onDevice,
  },
  millpond_device_power_limit_watts: {
    part: "controller",
    type: "gauge",
    help: "Power limit of the card, where its driver reports it",
    labels: onDevice,
  },
  millpond_device_sm_clock_hertz: {
    part: "controller",
    type: "gauge",
    help: "Clock of the multiprocessors, where the driver reports it",
    labels: onDevice,
  },
  millpond_device_memory_clock_hertz: {
    part: "controller",
    type: "gauge",
    help: "Clock of the card's memory, where the driver reports it",
    labels: onDevice,
  },
  millpond_device_ecc_corrected_errors_total: {
    part: "controller",
    type: "counter",
    help: "Memory errors of the card that ECC has corrected since its driver was loaded",
    labels: onDevice,
  },
  millpond_device_ecc_uncorrected_errors_total: {
    part: "controller",
    type: "counter",
    help: "Memory errors of the card that ECC could not correct, since its driver was loaded",
    labels: onDevice,
  },
  millpond_device_remapped_rows: {
    part: "controller",
    type: "gauge",
    help: "Rows of the card's memory that were replaced permanently",
    labels: onDevice,
  },
  millpond_device_row_remap_pending: {
    part: "controller",
    type: "gauge",
    help: "1 if rows of the card's memory are replaced at its next reset, otherwise 0",
    labels: onDevice,
  },
  millpond_device_xids_total: {
    part: "controller",
    type: "counter",
    help: "Xids that the driver has reported for the card since its agent started, those of programs included",
    labels: onDevice,
  },
  millpond_device_virtual_gpus: {
    part: "controller",
    type: "gauge",
    help: "vGPUs on the device",
    labels: onDevice,
  },
  millpond_sessions: { part: "controller", type: "gauge", help: "Sessions on the node", labels: ["node"] },
  millpond_claims: {
    part: "controller",
    type: "gauge",
    help: "Claims that have not ended, by queue and state: pending, bound, dormant",
    labels: ["queue", "state"],
  },
  millpond_oldest_pending_claim_seconds: {
    part: "controller",
    type: "gauge",
    help: "Waiting time of the oldest pending claim of the queue",
    labels: ["queue"],
  },
  millpond_queue_used_gpus: {
    part: "controller",
    type: "gauge",
    help: "GPUs held by claims of the queue and its descendants",
    labels: ["queue"],
  },
  millpond_queue_guaranteed_gpus: {
    part: "controller",
    type: "gauge",
    help: "Guaranteed GPUs of the queue; absent if none",
    labels: ["queue"],
  },
  millpond_queue_limit_gpus: {
    part: "controller",
    type: "gauge",
    help: "Limit of GPUs of the queue; absent if unlimited",
    labels: ["queue"],
  },
  millpond_tenant_used_gpus: {
    part: "controller",
    type: "gauge",
    help: "GPUs held by claims of the tenant",
    labels: ["tenant"],
  },
  millpond_tenant_limit_gpus: {
    part: "controller",
    type: "gauge",
    help: "Limit of GPUs of the tenant; absent if unlimited",
    labels: ["tenant"],
  },
  millpond_events_total: {
    part: "controller",
    type: "counter",
    help: "Events by kind since the controller started: ClaimBound, ClaimRequeued, NodeLost and so on",
    labels: ["kind"],
  },
  millpond_claim_wait_seconds: {
    part: "controller",
    type: "histogram",
    help: "Time from creation of a claim to its first binding",
    labels: ["queue"],
    buckets: waitBuckets,
  },
  millpond_change_seconds: {
    part: "controller",
    type: "histogram",
    help: "Latency of a change from its request until it is durable, queueing included",
    labels: [],
    buckets: commitBuckets,
  },

  millpond_agent_workers: {
    part: "agent",
    type: "gauge",
    help: "Workers by phase: starting, warm, assigned, connected, closing and so on",
    labels: ["phase"],
  },
  millpond_agent_session_memory_used_bytes: {
    part: "agent",
    type: "gauge",
    help: "Device memory that a session uses",
    labels: ["claim", "session", "uuid"],
  },
  millpond_agent_session_compute_seconds_total: {
    part: "agent",
    type: "counter",
    help: "Measured GPU time of the session; not measured while the session has a device to itself",
    labels: ["claim", "session", "uuid"],
  },
  millpond_agent_session_compute_share: {
    part: "agent",
    type: "gauge",
    help: "Granted share of the device's compute, 0.01 to 1; 0 for best effort",
    labels: ["claim", "session", "uuid", "class"],
  },
  millpond_agent_session_commands_total: {
    part: "agent",
    type: "counter",
    help: "Calls that the session's worker has executed",
    labels: ["claim", "session"],
  },
  millpond_agent_session_launches_total: {
    part: "agent",
    type: "counter",
    help: "Kernels that the session has launched",
    labels: ["claim", "session"],
  },
  millpond_agent_device_healthy: {
    part: "agent",
    type: "gauge",
    help: "1 if workers start on the device, else 0",
    labels: ["uuid"],
  },
  millpond_agent_last_sync_timestamp_seconds: {
    part: "agent",
    type: "gauge",
    help: "Unix time of the controller's last answer, seconds; 0 if never",
    labels: [],
  },
} as const satisfies Record<string, MetricDefinition>;

export type MetricName = keyof typeof metricTable;

export type MetricLabels = Readonly<Record<string, string>>;

/** One value of a gauge or a counter. */
export interface MetricSample {
  readonly name: MetricName;
  readonly labels?: MetricLabels;
  readonly value: number;
}

/** Counts how often values were within bounds. */
export class Histogram {
  readonly #name: MetricName;
  readonly #bounds: readonly number[];
  readonly #series = new Map<
    string,
    { labels: MetricLabels; counts: number[]; sum: number; count: number }
  >();

  constructor(name: MetricName) {
    const definition: MetricDefinition = metricTable[name];
    this.#name = name;
    this.#bounds = definition.buckets ?? [];
  }

  observe(value: number, labels: MetricLabels = {}): void {
    const key = formatLabels(labels);
    const series = this.#series.get(key) ?? { labels, counts: this.#bounds.map(() => 0), sum: 0, count: 0 };
    this.#series.set(key, series);
    for (const [position, bound] of this.#bounds.entries()) {
      if (value <= bound) {
        series.counts[position] = (series.counts[position] ?? 0) + 1;
      }
    }
    series.sum += value;
    series.count += 1;
  }

  /** Its lines, without the HELP and TYPE lines. */
  lines(): string[] {
    return [...this.#series.values()].flatMap(({ labels, counts, sum, count }) => [
      ...this.#bounds.map(
        (bound, position) =>
          `${this.#name}_bucket${formatLabels({ ...labels, le: String(bound) })} ${counts[position] ?? 0}`,
      ),
      `${this.#name}_bucket${formatLabels({ ...labels, le: "+Inf" })} ${count}`,
      `${this.#name}_sum${formatLabels(labels)} ${sum}`,
      `${this.#name}_count${formatLabels(labels)} ${count}`,
    ]);
  }

  get name(): MetricName {
    return this.#name;
  }
}

/** Content type of the text format. */
export const metricsContentType = "text/plain; version=0.0.4; charset=utf-8";

/** Writes samples and histograms in the Prometheus text format, metrics in the order of the table. */
export function renderMetrics(
  samples: readonly MetricSample[],
  histograms: readonly Histogram[] = [],
): string {
  return renderSamples(metricTable, samples, (name) =>
    histograms.filter((histogram) => histogram.name === name).flatMap((histogram) => histogram.lines()),
  );
}

/** Writes samples of the metrics of a table in the Prometheus text format, in the order of the table. */
export function renderSamples(
  table: Readonly<Record<string, MetricDefinition>>,
  samples: readonly { readonly name: string; readonly labels?: MetricLabels; readonly value: number }[],
  moreOf: (name: string) => readonly string[] = () => [],
): string {
  const byName = Map.groupBy(samples, ({ name }) => name);
  const lines: string[] = [];
  for (const [name, { help, type }] of Object.entries(table)) {
    const values = [
      ...(byName.get(name) ?? []).map(({ labels = {}, value }) => `${name}${formatLabels(labels)} ${value}`),
      ...moreOf(name),
    ];
    if (values.length > 0) {
      lines.push(`# HELP ${name} ${help}.`, `# TYPE ${name} ${type}`, ...values);
    }
  }
  return `${lines.join("\n")}\n`;
}

/** Metrics that every process has. */
export function processMetrics(version: string): MetricSample[] {
  const { user, system } = process.cpuUsage();
  return [
    { name: "millpond_build_info", labels: { version }, value: 1 },
    { name: "process_start_time_seconds", value: Math.round(Date.now() / 1000 - process.uptime()) },
    { name: "process_resident_memory_bytes", value: process.memoryUsage.rss() },
    { name: "process_cpu_seconds_total", value: (user + system) / 1e6 },
  ];
}

function formatLabels(labels: MetricLabels): string {
  const parts = Object.entries(labels).map(
    ([key, value]) =>
      `${key}="${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`,
  );
  return parts.length === 0 ? "" : `{${parts.join(",")}}`;
}
