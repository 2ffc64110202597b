// SPDX-License-Identifier: Apache-2.0

// Rows of the SQLite store as records.

import type { SQLOutputValue } from "node:sqlite";
import { millpondError } from "@millpond/api";
import type { Labels } from "@millpond/scheduler";
import { readClaimSpec } from "./claim-spec.ts";
import { isRole } from "../callers.ts";
import type {
  AuditRecord,
  ClaimRecord,
  ClaimRecordState,
  DeviceRecord,
  EventRecord,
  TokenRecord,
  UsageRecord,
  VirtualGpuRecord,
} from "./store.ts";

export type Row = Record<string, SQLOutputValue>;

export function toClaim(row: Row): ClaimRecord {
  return {
    ...readClaimSpec(text(row, "name"), text(row, "spec")),
    arrival: integer(row, "arrival"),
    state: claimState(text(row, "state")),
    reason: text(row, "reason"),
    version: integer(row, "version"),
    createdAt: integer(row, "created_at"),
    boundAt: integerOrNull(row, "bound_at"),
    endedAt: integerOrNull(row, "ended_at"),
    waitingSince: integerOrNull(row, "waiting_since"),
    preemptAt: integerOrNull(row, "preempt_at"),
    requeues: integer(row, "requeues"),
  };
}

function claimState(value: string): ClaimRecordState {
  switch (value) {
    case "pending":
    case "bound":
    case "released":
    case "failed":
      return value;
    default:
      throw millpondError("MILLPOND_E_STATE_BROKEN", `the state has a claim in the state ${value}`);
  }
}

export function toVirtualGpu(row: Row): VirtualGpuRecord {
  return {
    uuid: text(row, "uuid"),
    memoryBytes: BigInt(integer(row, "memory_bytes")),
    computePercent: integer(row, "compute_percent"),
  };
}

export function toDevice(row: Row): DeviceRecord {
  return {
    index: integer(row, "device_index"),
    uuid: text(row, "uuid"),
    name: text(row, "name"),
    kind: text(row, "kind"),
    memoryBytes: BigInt(integer(row, "memory_bytes")),
    pciBusId: text(row, "pci_bus_id"),
    computeCapability: text(row, "compute_capability"),
    multiprocessors: integer(row, "multiprocessors"),
    driverVersion: text(row, "driver_version"),
    cudaVersion: integer(row, "cuda_version"),
    isHealthy: integer(row, "healthy") === 1,
    healthReason: text(row, "health_reason"),
    numaNode: text(row, "numa_node"),
    pcieSwitch: text(row, "pcie_switch"),
    nvlinkDomain: text(row, "nvlink_domain"),
    isCordoned: integer(row, "cordoned") === 1,
  };
}

export function toToken(row: Row): TokenRecord {
  const role = text(row, "role");
  if (!isRole(role)) {
    throw millpondError("MILLPOND_E_STATE_BROKEN", `the state has a token of the role ${role}`);
  }
  return {
    name: text(row, "name"),
    hash: text(row, "hash"),
    role,
    tenant: text(row, "tenant"),
    createdAt: integer(row, "created_at"),
    expiresAt: integerOrNull(row, "expires_at"),
    createdBy: text(row, "created_by"),
  };
}

export function toAuditRecord(row: Row): AuditRecord {
  return {
    id: integer(row, "id"),
    at: integer(row, "at"),
    who: text(row, "who"),
    role: text(row, "role"),
    tenant: text(row, "tenant"),
    what: text(row, "what"),
    subject: text(row, "subject"),
    why: text(row, "why"),
    result: text(row, "result"),
  };
}

export function toEvent(row: Row): EventRecord {
  return {
    id: integer(row, "id"),
    at: integer(row, "at"),
    kind: text(row, "kind"),
    subject: text(row, "subject"),
    message: text(row, "message"),
  };
}

export function toUsage(row: Row): UsageRecord {
  const kind = text(row, "kind");
  if (kind !== "waited" && kind !== "held") {
    throw millpondError("MILLPOND_E_STATE_BROKEN", `the state has usage of the kind ${kind}`);
  }
  return {
    kind,
    claim: text(row, "claim"),
    tenant: text(row, "tenant"),
    queue: text(row, "queue"),
    gpuMilli: integer(row, "gpu_milli"),
    beganAt: integer(row, "began_at"),
    endedAt: integer(row, "ended_at"),
    activeSeconds: integer(row, "active_seconds"),
  };
}

/** Labels that were written as JSON. */
export function labels(row: Row, column: string): Labels {
  const value: unknown = JSON.parse(text(row, column));
  if (
    typeof value !== "object" ||
    value === null ||
    Object.values(value).some((each) => typeof each !== "string")
  ) {
    return wrongType(column);
  }
  return value as Labels;
}

export function text(row: Row, column: string): string {
  const value = row[column];
  return typeof value === "string" ? value : wrongType(column);
}

export function integer(row: Row, column: string): number {
  const value = row[column];
  return typeof value === "number" ? value : wrongType(column);
}

export function integerOrNull(row: Row, column: string): number | null {
  return row[column] === null ? null : integer(row, column);
}

export function blob(row: Row, column: string): Uint8Array {
  const value = row[column];
  return value instanceof Uint8Array ? value : wrongType(column);
}

function wrongType(column: string): never {
  throw millpondError(
    "MILLPOND_E_STATE_BROKEN",
    `the state has a value of another type in the column ${column}`,
  );
}
