// SPDX-License-Identifier: Apache-2.0

// Metrics under the names of NVIDIA's DCGM exporter, for existing dashboards and alerts. They describe claims and programs,
// not whole devices: if several claims share a device, each has its own metrics.

import { type MetricDefinition, type MetricLabels, renderSamples } from "./metrics.ts";

/** Labels of the DCGM exporter, in its spelling. */
const ofDevice = [
  "gpu",
  "UUID",
  "pci_bus_id",
  "device",
  "modelName",
  "Hostname",
  "DCGM_FI_DRIVER_VERSION",
] as const;
const ofClaim = [...ofDevice, "claim", "tenant", "queue", "namespace", "pod"] as const;
const ofProgram = [...ofClaim, "session", "pid", "program", "client_host"] as const;

/** Units are those of DCGM: MiB, percent, ratios from 0 to 1. */
export const dcgmTable = {
  DCGM_FI_DEV_FB_TOTAL: {
    part: "controller",
    type: "gauge",
    help: "Memory limit of the claim on the device, MiB",
    labels: ofClaim,
  },
  DCGM_FI_DEV_FB_FREE: {
    part: "controller",
    type: "gauge",
    help: "Memory of the claim that its programs do not use, MiB",
    labels: ofClaim,
  },
  DCGM_FI_DEV_FB_USED: {
    part: "controller",
    type: "gauge",
    help: "Memory of the device that the program uses, MiB",
    labels: ofProgram,
  },
  DCGM_FI_DEV_GPU_UTIL: {
    part: "controller",
    type: "gauge",
    help: "GPU time of the program in the last seconds, percent; absent if not measured",
    labels: ofProgram,
  },
  DCGM_FI_PROF_GR_ENGINE_ACTIVE: {
    part: "controller",
    type: "gauge",
    help: "The same, 0 to 1",
    labels: ofProgram,
  },
} as const satisfies Record<string, MetricDefinition>;

export type DcgmMetricName = keyof typeof dcgmTable;

export interface DcgmSample {
  readonly name: DcgmMetricName;
  readonly labels: MetricLabels;
  readonly value: number;
}

/** Writes samples in the text form of Prometheus. */
export function renderDcgmMetrics(samples: readonly DcgmSample[]): string {
  return renderSamples(dcgmTable, samples);
}
