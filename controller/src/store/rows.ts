// SPDX-License-Identifier: Apache-2.0

// Converts rows of a database to records and back: the tables of all stores have the same columns.

import { millpondError, readReason, reason, writeReason } from "@millpond/api";
import type { Labels, QueueSpec, TenantSpec } from "@millpond/scheduler";
import { type ClaimSpec } from "../domain/claim-spec.ts";
import { readClaimSpec, writeClaimSpec } from "./claim-spec-column.ts";
import { isRole } from "../domain/caller.ts";
import type {
  AllocationRecord,
  AuditEntry,
  AuditRecord,
  ClaimRecord,
  ClaimRecordState,
  DeviceRecord,
  EventRecord,
  LoginRecord,
  NodeRecord,
  RemovedNodeRecord,
  SigningKeyRecord,
  TokenRecord,
  UsageRecord,
  VirtualGpuRecord,
} from "../domain/records.ts";
import { readQueueSpec, readTenantSpec } from "./queue-spec.ts";
import { readResizing, writeResizing } from "./resizing.ts";
import type { Restoration, StoredState } from "../state/store.ts";

/** A row as read, by column. */
export type Row = Readonly<Record<string, unknown>>;

/** A row as written, by column. All sizes are below 2^53. */
export type NewRow = Readonly<Record<string, string | number | null>>;

/** The rows of all tables that are kept in memory, each table in its order and read once. */
export interface StateRows {
  readonly identity: string;
  readonly revision: number;
  readonly epoch: number;
  readonly restoration: Restoration | undefined;
  readonly lastEvent: number;
  readonly claims: Iterable<Row>;
  readonly allocations: Iterable<Row>;
  readonly virtualGpus: Iterable<Row>;
  readonly nodes: Iterable<Row>;
  readonly devices: Iterable<Row>;
  readonly removedNodes: Iterable<Row>;
  readonly queues: Iterable<Row>;
  readonly tenants: Iterable<Row>;
  readonly tokens: Iterable<Row>;
  readonly signingKeys: Iterable<Row>;
  readonly logins: Iterable<Row>;
}

export function toState(rows: StateRows): StoredState {
  const { identity, revision, epoch, restoration, lastEvent } = rows;
  const devices = toDevices(rows.devices);
  return {
    identity,
    revision,
    epoch,
    restoration,
    lastEvent,
    claims: toClaims(rows.claims),
    allocations: toAllocations(rows.allocations, rows.virtualGpus),
    nodes: Array.from(rows.nodes, (row) => toNode(row, devices.get(text(row, "name")) ?? [])),
    removedNodes: Array.from(rows.removedNodes, toRemovedNode),
    queues: Array.from(rows.queues, toQueue),
    tenants: Array.from(rows.tenants, toTenant),
    tokens: Array.from(rows.tokens, toToken),
    signingKeys: Array.from(rows.signingKeys, toSigningKey),
    logins: Array.from(rows.logins, toLogin),
  };
}

/** @param row A row of the table `pool`. */
export function toRestoration(row: Row): Restoration | undefined {
  const resumedAt = integer(row, "resumed_at");
  return resumedAt === 0 ? undefined : { epoch: integer(row, "restored_epoch"), resumedAt };
}

export function toQueue(row: Row): QueueSpec {
  return readQueueSpec(text(row, "name"), text(row, "spec"));
}

export function toTenant(row: Row): TenantSpec {
  return readTenantSpec(text(row, "name"), text(row, "spec"));
}

/** Requests of a pool's claims repeat: each distinct one is parsed once. */
export function toClaims(rows: Iterable<Row>): ClaimRecord[] {
  const known = new Map<string, ClaimSpec>();
  return Array.from(rows, (row) => {
    const written = text(row, "spec");
    const spec = known.get(written) ?? readClaimSpec("", written);
    known.set(written, spec);
    return toClaim(row, spec);
  });
}

function toClaim(row: Row, spec: ClaimSpec): ClaimRecord {
  return {
    ...spec,
    name: text(row, "name"),
    arrival: integer(row, "arrival"),
    state: claimState(text(row, "state")),
    reason: readReason(text(row, "reason")),
    version: integer(row, "version"),
    createdAt: integer(row, "created_at"),
    boundAt: integerOrNull(row, "bound_at"),
    endedAt: integerOrNull(row, "ended_at"),
    waitingSince: integerOrNull(row, "waiting_since"),
    preemptAt: integerOrNull(row, "preempt_at"),
    requeues: integer(row, "requeues"),
  };
}

export function fromClaim(claim: ClaimRecord): NewRow {
  return {
    name: claim.name,
    arrival: claim.arrival,
    spec: writeClaimSpec(claim),
    state: claim.state,
    reason: writeReason(claim.reason),
    version: claim.version,
    created_at: claim.createdAt,
    bound_at: claim.boundAt,
    ended_at: claim.endedAt,
    waiting_since: claim.waitingSince,
    preempt_at: claim.preemptAt,
    requeues: claim.requeues,
  };
}

function claimState(value: string): ClaimRecordState {
  switch (value) {
    case "dormant":
    case "pending":
    case "bound":
    case "released":
    case "failed":
      return value;
    default:
      throw millpondError("MILLPOND_E_STATE_BROKEN", `the state has a claim in the state ${value}`);
  }
}

/** Allocations from their rows and the rows of their vGPUs, which are sorted by ordinal. */
export function toAllocations(rows: Iterable<Row>, virtualGpus: Iterable<Row>): AllocationRecord[] {
  const devices = new Map<number, VirtualGpuRecord[]>();
  for (const row of virtualGpus) {
    const epoch = integer(row, "epoch");
    const ofEpoch = devices.get(epoch);
    if (ofEpoch === undefined) devices.set(epoch, [toVirtualGpu(row)]);
    else ofEpoch.push(toVirtualGpu(row));
  }
  return Array.from(rows, (row) => {
    const epoch = integer(row, "epoch");
    return {
      claim: text(row, "claim"),
      node: text(row, "node"),
      epoch,
      grantedAt: integer(row, "granted_at"),
      activeSeconds: integer(row, "active_seconds"),
      countedMs: integer(row, "counted_ms"),
      releasedRevision: integerOrNull(row, "released_revision"),
      sizeRevision: integer(row, "size_revision"),
      resizing: readResizing(textOrNull(row, "resizing")),
      devices: devices.get(epoch) ?? [],
    };
  });
}

export function fromAllocation(allocation: AllocationRecord): NewRow {
  return {
    epoch: allocation.epoch,
    claim: allocation.claim,
    node: allocation.node,
    granted_at: allocation.grantedAt,
    active_seconds: allocation.activeSeconds,
    counted_ms: allocation.countedMs,
    released_revision: allocation.releasedRevision,
    size_revision: allocation.sizeRevision,
    resizing: writeResizing(allocation.resizing),
  };
}

export function fromVirtualGpus({ epoch, node, devices }: AllocationRecord): NewRow[] {
  return devices.map(({ uuid, memoryBytes, computePercent }, ordinal) => ({
    epoch,
    ordinal,
    node,
    uuid,
    memory_bytes: Number(memoryBytes),
    compute_percent: computePercent,
  }));
}

function toVirtualGpu(row: Row): VirtualGpuRecord {
  return {
    uuid: text(row, "uuid"),
    memoryBytes: BigInt(integer(row, "memory_bytes")),
    computePercent: integer(row, "compute_percent"),
  };
}

/** @param devices In order of their ordinals. */
export function toNode(row: Row, devices: NodeRecord["devices"]): NodeRecord {
  return {
    name: text(row, "name"),
    agentUrl: text(row, "agent_url"),
    agentVersion: text(row, "agent_version"),
    hostname: text(row, "hostname"),
    bootId: text(row, "boot_id"),
    isCordoned: integer(row, "cordoned") === 1,
    cordonReason: text(row, "cordon_reason"),
    labels: labels(row, "labels"),
    agentLabels: labels(row, "agent_labels"),
    revision: integer(row, "revision"),
    joinedAt: integer(row, "joined_at"),
    devices,
  };
}

export function fromNode(node: NodeRecord): NewRow {
  return {
    name: node.name,
    agent_url: node.agentUrl,
    agent_version: node.agentVersion,
    hostname: node.hostname,
    boot_id: node.bootId,
    cordoned: Number(node.isCordoned),
    cordon_reason: node.cordonReason,
    labels: JSON.stringify(node.labels),
    agent_labels: JSON.stringify(node.agentLabels),
    revision: node.revision,
    joined_at: node.joinedAt,
  };
}

/** Devices by their nodes. */
export function toDevices(rows: Iterable<Row>): ReadonlyMap<string, readonly DeviceRecord[]> {
  const byNode = Map.groupBy(rows, (row) => text(row, "node"));
  return new Map([...byNode].map(([node, devices]) => [node, devices.map(toDevice)]));
}

export function fromDevice(node: string, device: DeviceRecord): NewRow {
  return {
    node,
    uuid: device.uuid,
    device_index: device.index,
    name: device.name,
    kind: device.kind,
    memory_bytes: Number(device.memoryBytes),
    overhead_bytes: Number(device.overheadBytes),
    pci_bus_id: device.pciBusId,
    compute_capability: device.computeCapability,
    multiprocessors: device.multiprocessors,
    driver_version: device.driverVersion,
    cuda_version: device.cudaVersion,
    healthy: Number(device.isHealthy),
    health_reason: device.healthReason,
    cordoned: Number(device.isCordoned),
    cordon_reason: device.cordonReason,
    numa_node: device.numaNode,
    pcie_switch: device.pcieSwitch,
    nvlink_domain: device.nvlinkDomain,
  };
}

function toDevice(row: Row): DeviceRecord {
  return {
    index: integer(row, "device_index"),
    uuid: text(row, "uuid"),
    name: text(row, "name"),
    kind: text(row, "kind"),
    memoryBytes: BigInt(integer(row, "memory_bytes")),
    overheadBytes: BigInt(integer(row, "overhead_bytes")),
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
    cordonReason: text(row, "cordon_reason"),
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
    node: text(row, "node"),
    createdAt: integer(row, "created_at"),
    expiresAt: integerOrNull(row, "expires_at"),
    createdBy: text(row, "created_by"),
    revision: integer(row, "revision"),
  };
}

export function fromToken(token: TokenRecord): NewRow {
  return {
    name: token.name,
    hash: token.hash,
    role: token.role,
    tenant: token.tenant,
    node: token.node,
    created_at: token.createdAt,
    expires_at: token.expiresAt,
    created_by: token.createdBy,
    revision: token.revision,
  };
}

export function toLogin(row: Row): LoginRecord {
  return {
    id: text(row, "id"),
    who: text(row, "who"),
    tenant: text(row, "tenant"),
    kind: text(row, "kind") === "console" ? "console" : "command-line",
    createdAt: integer(row, "created_at"),
    expiresAt: integer(row, "expires_at"),
    isRevoked: integer(row, "revoked") === 1,
  };
}

export function fromLogin({ id, who, tenant, kind, createdAt, expiresAt, isRevoked }: LoginRecord): NewRow {
  return {
    id,
    who,
    tenant,
    kind,
    created_at: createdAt,
    expires_at: expiresAt,
    revoked: isRevoked ? 1 : 0,
  };
}

export function toSigningKey(row: Row): SigningKeyRecord {
  return {
    id: text(row, "id"),
    publicKey: text(row, "public_key"),
    sealed: text(row, "sealed"),
    createdAt: integer(row, "created_at"),
    retiresAt: integerOrNull(row, "retires_at"),
    isRevoked: integer(row, "revoked") === 1,
    revision: integer(row, "revision"),
  };
}

export function fromSigningKey(key: SigningKeyRecord): NewRow {
  return {
    id: key.id,
    public_key: key.publicKey,
    sealed: key.sealed,
    created_at: key.createdAt,
    retires_at: key.retiresAt,
    revoked: Number(key.isRevoked),
    revision: key.revision,
  };
}

export function toRemovedNode(row: Row): RemovedNodeRecord {
  return {
    name: text(row, "name"),
    removedAt: integer(row, "removed_at"),
    revision: integer(row, "revision"),
  };
}

export function fromRemovedNode({ name, removedAt, revision }: RemovedNodeRecord): NewRow {
  return { name, removed_at: removedAt, revision };
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
    previousHash: text(row, "previous_hash"),
    hash: text(row, "hash"),
  };
}

export function fromAuditEntry({ at, who, role, tenant, what, subject, why, result }: AuditEntry): NewRow {
  return { at, who, role, tenant, what, subject, why, result };
}

export function toEvent(row: Row): EventRecord {
  return {
    id: integer(row, "id"),
    at: integer(row, "at"),
    kind: text(row, "kind"),
    subject: text(row, "subject"),
    detail: readReason(text(row, "message")) ?? reason("recorded", { text: "" }),
  };
}

export function fromEvent({ id, at, kind, subject, detail }: EventRecord): NewRow {
  return { id, at, kind, subject, message: writeReason(detail) };
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
    user: text(row, "claim_user"),
    model: text(row, "model"),
    gpuMilli: integer(row, "gpu_milli"),
    beganAt: integer(row, "began_at"),
    endedAt: integer(row, "ended_at"),
    activeSeconds: integer(row, "active_seconds"),
  };
}

export function fromUsage(usage: UsageRecord): NewRow {
  return {
    kind: usage.kind,
    claim: usage.claim,
    tenant: usage.tenant,
    queue: usage.queue,
    claim_user: usage.user,
    model: usage.model,
    gpu_milli: usage.gpuMilli,
    began_at: usage.beganAt,
    ended_at: usage.endedAt,
    active_seconds: usage.activeSeconds,
  };
}

/** Labels, stored as JSON. */
function labels(row: Row, column: string): Labels {
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

function textOrNull(row: Row, column: string): string | null {
  return row[column] === null ? null : text(row, column);
}

export function integer(row: Row, column: string): number {
  const value = row[column];
  return typeof value === "number" ? value : wrongType(column);
}

function integerOrNull(row: Row, column: string): number | null {
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
