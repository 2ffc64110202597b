// SPDX-License-Identifier: Apache-2.0

import {
  type AuditRecord,
  borrowingWord,
  type Claim,
  ClaimState,
  countOf,
  type Device,
  DeviceHealth,
  type Event,
  formatAge,
  formatBytes,
  formatGpuMilli,
  type Login,
  type Node,
  NodeState,
  type Queue,
  quotaText,
  type Session,
  type Tenant,
  type Token,
  type UserStatus,
} from "@millpond/api";
import { parseAgentUrl } from "@millpond/platform";
import { claimStateWord, sessionStateWord } from "./resources.ts";
import type { Column } from "./table.ts";

const none = "-";

/** Time since a moment, Unix seconds; `-` for 0. */
export function ageOf(seconds: bigint, nowSeconds: number): string {
  return seconds === 0n ? none : formatAge(Math.max(0, nowSeconds - Number(seconds)));
}

/** A column with the time since a moment. */
function ageColumn<T>(title: string, at: (item: T) => bigint, nowSeconds: number, isWide = false): Column<T> {
  return { title, at, cell: (item) => ageOf(at(item), nowSeconds), isWide };
}

/** The time at which its time limit ends a bound claim, Unix seconds; 0: it has no limit, or the limit is not running yet. */
export function timeLimitEnd(claim: Claim): bigint {
  const counts = claim.state === ClaimState.BOUND && claim.timeLimitSeconds > 0 && claim.boundAt > 0n;
  return counts ? claim.boundAt + BigInt(claim.timeLimitSeconds) : 0n;
}

/** Time until a moment; `-` for none. */
export function timeUntil(seconds: bigint, nowSeconds: number): string {
  return seconds === 0n ? none : formatAge(Math.max(0, Number(seconds) - nowSeconds));
}

/** The memory that a claim requests on each device: `1 GiB`, `50%`, `whole`. */
export function askedMemory(claim: Claim): string {
  if (claim.memoryBytes > 0n) return formatBytes(claim.memoryBytes);
  return claim.memoryPercent > 0 ? `${claim.memoryPercent}%` : "whole";
}

/** The devices of a session in the form for display: `node-a/0,1`. */
export function sessionDevices(session: Session): string {
  return `${session.node}/${session.devices.map(({ index }) => index).join(",")}`;
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

/** Health, and whether it accepts new claims. */
export function deviceStatus(device: Device): string {
  const health = device.health === DeviceHealth.HEALTHY ? "Healthy" : "Unhealthy";
  return device.cordoned ? `${health},Cordoned` : health;
}

/** Why a node or a device is not used, as reported, and the reason for its cordon. */
export function troubleOf(
  trouble: string,
  { cordoned, cordonReason }: Pick<Node, "cordoned" | "cordonReason">,
): string {
  const cordon = cordonReason === "" ? "cordoned" : `cordoned: ${cordonReason}`;
  return [trouble, cordoned ? cordon : ""].filter((part) => part !== "").join("; ");
}

export function nodeStatus(node: Node): string {
  const state = node.state === NodeState.READY ? "Ready" : "NotReady";
  return node.cordoned ? `${state},Cordoned` : state;
}

export function nodeColumns(nowSeconds: number): readonly Column<Node>[] {
  const sum = (node: Node, of: (device: Device) => number): string =>
    String(node.devices.reduce((total, device) => total + of(device), 0));
  return [
    { title: "NAME", cell: (node) => node.name },
    { title: "STATUS", cell: nodeStatus },
    { title: "DEVICES", cell: (node) => String(node.devices.length), align: "right" },
    { title: "VGPUS", cell: (node) => sum(node, (device) => device.virtualGpus), align: "right" },
    { title: "SESSIONS", cell: (node) => sum(node, (device) => device.openSessions), align: "right" },
    ageColumn("AGE", (node) => node.joinedAt, nowSeconds),
    ageColumn("CONTACT", (node) => node.lastContactAt, nowSeconds, true),
    { title: "WARM", cell: (node) => String(node.warmWorkers), align: "right", isWide: true },
    { title: "HOST", cell: (node) => node.hostname, isWide: true },
    { title: "AGENT", cell: (node) => parseAgentUrl(node.agentUrl).baseUrl, isWide: true },
    { title: "VERSION", cell: (node) => node.agentVersion, isWide: true },
    { title: "REASON", cell: (node) => troubleOf(node.reason, node) || none, isWide: true },
  ];
}

/** `41 °C`. */
export function temperature({ card }: Device): string {
  return card?.temperatureCelsius === undefined ? none : `${card.temperatureCelsius} °C`;
}

/** Its power consumption and limit: `90 / 700 W`. */
export function power({ card }: Device): string {
  if (card?.powerMilliwatts === undefined) return none;
  const limit =
    card.powerLimitMilliwatts === undefined ? "" : ` / ${Math.round(card.powerLimitMilliwatts / 1000)}`;
  return `${Math.round(card.powerMilliwatts / 1000)}${limit} W`;
}

/** `2 corrected, 0 uncorrected, 3 rows replaced`; `-`: not reported. */
export function memoryErrors({ card }: Device): string {
  const rows = card?.remappedRows ?? 0;
  const parts = [
    ...(card?.eccCorrectedErrors === undefined ? [] : [`${card.eccCorrectedErrors} corrected`]),
    ...(card?.eccUncorrectedErrors === undefined ? [] : [`${card.eccUncorrectedErrors} uncorrected`]),
    ...(rows === 0 ? [] : [`${countOf(rows, "row")} replaced`]),
    ...((card?.pendingRowRemaps ?? 0) === 0 ? [] : ["more to be replaced at the next reset"]),
  ];
  return parts.join(", ") || none;
}

/** `2, the last was 31`; `-`: not reported. */
export function xids({ card }: Device): string {
  if (card?.xids === undefined) return none;
  return card.lastXid === undefined ? String(card.xids) : `${card.xids}, the last was ${card.lastXid}`;
}

export const deviceColumns: readonly Column<Device>[] = [
  { title: "NAME", cell: (device) => `${device.node}/${device.index}` },
  { title: "MODEL", cell: (device) => device.name },
  {
    title: "MEMORY",
    cell: (device) => `${formatBytes(device.allocatedMemoryBytes)} / ${formatBytes(device.memoryBytes)}`,
    align: "right",
  },
  { title: "COMPUTE", cell: (device) => `${device.allocatedComputePercent}%`, align: "right" },
  { title: "VGPUS", cell: (device) => String(device.virtualGpus), align: "right" },
  { title: "SESSIONS", cell: (device) => String(device.openSessions), align: "right" },
  { title: "STATUS", cell: deviceStatus },
  { title: "USED", cell: (device) => formatBytes(device.usedMemoryBytes), align: "right", isWide: true },
  { title: "TEMP", cell: temperature, align: "right", isWide: true },
  { title: "POWER", cell: power, align: "right", isWide: true },
  { title: "UUID", cell: (device) => device.uuid, isWide: true },
  { title: "KIND", cell: (device) => device.kind, isWide: true },
  { title: "PCI", cell: (device) => device.pciBusId || none, isWide: true },
  { title: "CC", cell: (device) => device.computeCapability, isWide: true },
  { title: "SMS", cell: (device) => String(device.multiprocessors), align: "right", isWide: true },
  { title: "DRIVER", cell: (device) => device.driverVersion || none, isWide: true },
  { title: "CUDA", cell: (device) => cudaVersion(device.cudaVersion), isWide: true },
  { title: "REASON", cell: (device) => troubleOf(device.healthReason, device) || none, isWide: true },
];

/** 13000 → `13.0`. */
export function cudaVersion(version: number): string {
  return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
}

export function claimColumns(nowSeconds: number): readonly Column<Claim>[] {
  return [
    { title: "NAME", cell: (claim) => claim.name },
    { title: "STATE", cell: (claim) => capital(claimStateWord(claim.state)) },
    { title: "GPUS", cell: (claim) => String(claim.gpus), align: "right" },
    { title: "MEMORY", cell: askedMemory, align: "right" },
    {
      title: "COMPUTE",
      cell: (claim) => (claim.computePercent === 0 ? "auto" : `${claim.computePercent}%`),
      align: "right",
    },
    { title: "QUEUE", cell: (claim) => claim.queue || none },
    { title: "NODE", cell: (claim) => claim.allocation?.node ?? none },
    { title: "SESSIONS", cell: (claim) => String(claim.openSessions), align: "right" },
    ageColumn("AGE", (claim) => claim.createdAt, nowSeconds),
    { title: "OWNER", cell: (claim) => claim.owner || none },
    {
      title: "POSITION",
      cell: (claim) => (claim.state === ClaimState.PENDING ? String(claim.queuePosition) : none),
      align: "right",
      isWide: true,
    },
    {
      title: "LEFT",
      at: timeLimitEnd,
      cell: (claim) => timeUntil(timeLimitEnd(claim), nowSeconds),
      isWide: true,
    },
    {
      title: "LEASE",
      at: (claim) => claim.leaseExpiresAt,
      cell: (claim) => timeUntil(claim.leaseExpiresAt, nowSeconds),
      isWide: true,
    },
    {
      title: "DEVICES",
      cell: (claim) => claim.allocation?.devices.map(({ uuid }) => uuid).join(",") ?? none,
      isWide: true,
    },
    { title: "TENANT", cell: (claim) => claim.tenant || none, isWide: true },
    { title: "USER", cell: (claim) => claim.user || none, isWide: true },
    { title: "PRIORITY", cell: (claim) => String(claim.priority), align: "right", isWide: true },
    {
      title: "GANG",
      cell: (claim) => (claim.gang === "" ? none : `${claim.gang} ${claim.gangRank + 1}/${claim.gangSize}`),
      isWide: true,
    },
    { title: "REASON", cell: (claim) => claim.reason || none, isWide: true },
  ];
}

export const queueColumns: readonly Column<Queue>[] = [
  { title: "NAME", cell: (queue) => queue.name },
  { title: "PARENT", cell: (queue) => queue.parent || none },
  { title: "WEIGHT", cell: (queue) => String(queue.weight), align: "right" },
  { title: "GUARANTEED", cell: (queue) => quotaText(queue.guaranteed) },
  { title: "LIMIT", cell: (queue) => quotaText(queue.limit) },
  { title: "GPUS", cell: (queue) => formatGpuMilli(queue.used?.gpuMilli ?? 0n), align: "right" },
  { title: "MEMORY", cell: (queue) => formatBytes(queue.used?.memoryBytes ?? 0n), align: "right" },
  { title: "BOUND", cell: (queue) => String(queue.boundClaims), align: "right" },
  { title: "WAITING", cell: (queue) => String(queue.waitingClaims), align: "right" },
  { title: "BORROWING", cell: (queue) => borrowingWord(queue.borrowing), isWide: true },
  {
    title: "COMPUTE",
    cell: (queue) => `${queue.used?.computePercent ?? 0n}%`,
    align: "right",
    isWide: true,
  },
];

export const tenantColumns: readonly Column<Tenant>[] = [
  { title: "NAME", cell: (tenant) => tenant.name },
  { title: "LIMIT", cell: (tenant) => quotaText(tenant.limit) },
  { title: "GPUS", cell: (tenant) => formatGpuMilli(tenant.used?.gpuMilli ?? 0n), align: "right" },
  { title: "MEMORY", cell: (tenant) => formatBytes(tenant.used?.memoryBytes ?? 0n), align: "right" },
  { title: "BOUND", cell: (tenant) => String(tenant.boundClaims), align: "right" },
  { title: "WAITING", cell: (tenant) => String(tenant.waitingClaims), align: "right" },
  { title: "EACH USER", cell: (tenant) => quotaText(tenant.userLimits?.each) },
  { title: "USERS", cell: (tenant) => tenant.users.map(gpusOfUser).join(" ") || none, isWide: true },
];

/** `ann=1.5/2`: GPUs in use, and the limit if there is one. */
function gpusOfUser({ user, used, limit }: UserStatus): string {
  const most = limit?.gpuMilli === undefined ? "" : `/${formatGpuMilli(limit.gpuMilli)}`;
  return `${user || "?"}=${formatGpuMilli(used?.gpuMilli ?? 0n)}${most}`;
}

export const userColumns: readonly Column<UserStatus>[] = [
  { title: "USER", cell: ({ user }) => user || "unknown" },
  { title: "LIMIT", cell: ({ limit }) => quotaText(limit) },
  { title: "GPUS", cell: ({ used }) => formatGpuMilli(used?.gpuMilli ?? 0n), align: "right" },
  { title: "COMPUTE", cell: ({ used }) => `${used?.computePercent ?? 0n}%`, align: "right" },
  { title: "MEMORY", cell: ({ used }) => formatBytes(used?.memoryBytes ?? 0n), align: "right" },
  { title: "BOUND", cell: ({ boundClaims }) => String(boundClaims), align: "right" },
  { title: "WAITING", cell: ({ waitingClaims }) => String(waitingClaims), align: "right" },
];

export function sessionColumns(nowSeconds: number, isWide: boolean): readonly Column<Session>[] {
  const used = (session: Session): bigint =>
    session.devices.reduce((sum, device) => sum + device.memoryUsedBytes, 0n);
  const granted = (session: Session): bigint =>
    session.devices.reduce((sum, device) => sum + (device.granted?.memoryBytes ?? 0n), 0n);
  return [
    { title: "NAME", cell: (session) => (isWide ? session.id : session.id.slice(0, 8)) },
    { title: "CLAIM", cell: (session) => session.claim },
    { title: "DEVICES", cell: sessionDevices },
    { title: "STATE", cell: (session) => capital(sessionStateWord(session.state)) },
    { title: "PID", cell: (session) => String(session.clientPid || none), align: "right" },
    { title: "PROGRAM", cell: (session) => session.program || none },
    {
      title: "MEMORY",
      cell: (session) => `${formatBytes(used(session))} / ${formatBytes(granted(session))}`,
      align: "right",
    },
    ageColumn("AGE", (session) => session.startedAt, nowSeconds),
    { title: "TRANSPORT", cell: (session) => session.transport || none, isWide: true },
    { title: "HOST", cell: (session) => session.clientHost || none, isWide: true },
    { title: "LAUNCHES", cell: (session) => String(session.launches), align: "right", isWide: true },
    { title: "WAITS", cell: (session) => String(session.waits), align: "right", isWide: true },
    { title: "COMMANDS", cell: (session) => String(session.commands), align: "right", isWide: true },
    { title: "OWNER", cell: (session) => session.owner || none, isWide: true },
  ];
}

export function eventColumns(nowSeconds: number): readonly Column<Event>[] {
  return [
    ageColumn("AGE", (event) => event.at, nowSeconds),
    { title: "KIND", cell: (event) => event.kind },
    { title: "SUBJECT", cell: (event) => event.subject },
    { title: "MESSAGE", cell: (event) => event.message },
    { title: "ID", cell: (event) => String(event.id), align: "right", isWide: true },
  ];
}

/** When a token or a login ends. */
function expiryColumn(nowSeconds: number): Column<Pick<Token, "expiresAt">> {
  const cell = ({ expiresAt }: Pick<Token, "expiresAt">): string => {
    if (expiresAt === 0n) return "never";
    const left = Number(expiresAt) - nowSeconds;
    return left <= 0 ? "expired" : `in ${formatAge(left)}`;
  };
  return { title: "EXPIRES", cell };
}

export function loginColumns(nowSeconds: number): readonly Column<Login>[] {
  return [
    { title: "ID", cell: (login) => login.id },
    { title: "WHO", cell: (login) => login.who },
    { title: "TENANT", cell: (login) => login.tenant || none },
    { title: "KIND", cell: (login) => login.kind },
    ageColumn("AGE", (login) => login.createdAt, nowSeconds),
    expiryColumn(nowSeconds),
  ];
}

export function tokenColumns(nowSeconds: number): readonly Column<Token>[] {
  return [
    { title: "NAME", cell: (token) => token.name },
    { title: "ROLE", cell: (token) => token.role },
    { title: "TENANT", cell: (token) => token.tenant || none },
    { title: "NODE", cell: (token) => token.node || none },
    ageColumn("AGE", (token) => token.createdAt, nowSeconds),
    expiryColumn(nowSeconds),
    { title: "MADE-BY", cell: (token) => token.createdBy },
  ];
}

export function auditColumns(nowSeconds: number): readonly Column<AuditRecord>[] {
  return [
    ageColumn("AGE", (record) => record.at, nowSeconds),
    { title: "WHO", cell: (record) => record.who },
    { title: "WHAT", cell: (record) => record.what },
    { title: "SUBJECT", cell: (record) => record.subject || none },
    { title: "RESULT", cell: (record) => record.result },
    { title: "WHY", cell: (record) => record.why || none },
    { title: "ROLE", cell: (record) => record.role, isWide: true },
    { title: "TENANT", cell: (record) => record.tenant || none, isWide: true },
    { title: "ID", cell: (record) => String(record.id), align: "right", isWide: true },
  ];
}
