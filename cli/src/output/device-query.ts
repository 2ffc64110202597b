// SPDX-License-Identifier: Apache-2.0
// `millpond smi --query-gpu`: a CSV of devices, with the field names and the format of nvidia-smi, so that scripts carry over.

import { type Device, millpondError, type Node, quote } from "@millpond/api";
import { healthWord, nodeStateWord } from "./resources.ts";

interface Field {
  /** The unit in brackets that nvidia-smi appends to the field's name and to its value. */
  readonly unit?: "MiB" | "%" | "W" | "MHz";
  readonly value: (device: Device, node: Node) => string | number;
}

/** Fields that nvidia-smi also has, under its names. */
const sharedFields = {
  index: { value: (device) => device.index },
  name: { value: (device) => device.name },
  uuid: { value: (device) => device.uuid },
  "pci.bus_id": { value: (device) => device.pciBusId },
  driver_version: { value: (device) => device.driverVersion },
  compute_cap: { value: (device) => device.computeCapability },
  "memory.total": { unit: "MiB", value: (device) => mebibytes(device.memoryBytes) },
  "memory.used": { unit: "MiB", value: (device) => mebibytes(device.usedMemoryBytes) },
  "memory.free": {
    unit: "MiB",
    value: (device) => mebibytes(device.memoryBytes) - mebibytes(device.usedMemoryBytes),
  },
  "utilization.gpu": { unit: "%", value: (device) => device.usedComputePercent ?? "" },
  "utilization.memory": { unit: "%", value: ({ card }) => card?.memoryUtilizationPercent ?? "" },
  "temperature.gpu": { value: ({ card }) => card?.temperatureCelsius ?? "" },
  "power.draw": { unit: "W", value: ({ card }) => watts(card?.powerMilliwatts) },
  "power.limit": { unit: "W", value: ({ card }) => watts(card?.powerLimitMilliwatts) },
  "clocks.gr": { unit: "MHz", value: ({ card }) => card?.graphicsClockMhz ?? "" },
  "clocks.sm": { unit: "MHz", value: ({ card }) => card?.smClockMhz ?? "" },
  "clocks.mem": { unit: "MHz", value: ({ card }) => card?.memoryClockMhz ?? "" },
  "ecc.errors.corrected.volatile.total": { value: ({ card }) => card?.eccCorrectedErrors ?? "" },
  "ecc.errors.uncorrected.volatile.total": { value: ({ card }) => card?.eccUncorrectedErrors ?? "" },
  "remapped_rows.pending": { value: ({ card }) => yesOrNo(card?.pendingRowRemaps) },
  pstate: { value: ({ card }) => (card?.performanceState === undefined ? "" : `P${card.performanceState}`) },
} as const satisfies Record<string, Field>;

/** Fields that exist only in a pool. */
const poolFields = {
  node: { value: (device) => device.node },
  "node.state": { value: (_, node) => nodeStateWord(node.state) },
  health: { value: (device) => healthWord(device.health) },
  cordoned: { value: (device, node) => String(node.cordoned || device.cordoned) },
  vgpus: { value: (device) => device.virtualGpus },
  sessions: { value: (device) => device.openSessions },
  "memory.granted": { unit: "MiB", value: (device) => mebibytes(device.allocatedMemoryBytes) },
  xids: { value: ({ card }) => card?.xids ?? "" },
  "compute.granted": { unit: "%", value: (device) => device.allocatedComputePercent },
} as const satisfies Record<string, Field>;

const fields: Readonly<Record<string, Field>> = { ...sharedFields, ...poolFields };

export interface DeviceQuery {
  readonly names: readonly string[];
  readonly hasHeader: boolean;
  readonly hasUnits: boolean;
}

/**
 * Reads `--query-gpu` and `--format`.
 *
 * @throws MILLPOND_E_INVALID for an unknown field or format
 */
export function parseDeviceQuery(names: readonly string[], format: readonly string[]): DeviceQuery {
  for (const name of names) {
    if (Object.hasOwn(fields, name)) continue;
    throw millpondError("MILLPOND_E_INVALID", `--query-gpu: there is no field ${quote(name)}`, {
      remedy: `There are ${Object.keys(fields).join(", ")}.`,
    });
  }
  for (const word of format) {
    if (["csv", "noheader", "nounits"].includes(word)) continue;
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--format: ${quote(word)} is not one of csv, noheader, nounits`,
    );
  }
  return { names, hasHeader: !format.includes("noheader"), hasUnits: !format.includes("nounits") };
}

/** Renders the values as nvidia-smi does: separated by a comma and a space, `[N/A]` for an unknown one. */
export function renderDeviceQuery(
  { names, hasHeader, hasUnits }: DeviceQuery,
  nodes: readonly Node[],
): string {
  const columns = names.map((name) => ({ name, field: fields[name] }));
  const titles = columns.map(({ name, field }) =>
    hasUnits && field?.unit !== undefined ? `${name} [${field.unit}]` : name,
  );
  const rows = nodes.flatMap((node) =>
    node.devices.map((device) =>
      columns.map(({ field }) => {
        const value = field?.value(device, node) ?? "";
        if (value === "") return "[N/A]";
        return hasUnits && field?.unit !== undefined ? `${value} ${field.unit}` : String(value);
      }),
    ),
  );
  return [...(hasHeader ? [titles] : []), ...rows].map((row) => `${row.join(", ")}\n`).join("");
}

/** Renders one line for each device, as `nvidia-smi -L` does. */
export function renderDeviceList(nodes: readonly Node[]): string {
  return nodes
    .flatMap((node) => node.devices)
    .map((device) => `GPU ${device.node}/${device.index}: ${device.name} (UUID: ${device.uuid})\n`)
    .join("");
}

/** With two decimals, as in nvidia-smi; empty: unknown. */
function watts(milliwatts: number | undefined): string {
  return milliwatts === undefined ? "" : (milliwatts / 1000).toFixed(2);
}

/** As nvidia-smi writes it; empty: unknown. */
function yesOrNo(number: number | undefined): string {
  if (number === undefined) return "";
  return number === 0 ? "No" : "Yes";
}

function mebibytes(bytes: bigint): number {
  return Number(bytes >> 20n);
}
