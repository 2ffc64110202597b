// SPDX-License-Identifier: Apache-2.0

// The four tables of `millpond top`, built from the controller's answers.

import {
  type Claim,
  ClaimState,
  countOf,
  type Device,
  DeviceHealth,
  formatBytes,
  formatGpuMilli,
  type Node,
  NodeState,
  type Queue,
  quotaText,
  type Session,
} from "@millpond/api";
import type { Connection } from "../connection/connection.ts";
import { ageOf, askedMemory, power, sessionDevices } from "../output/columns.ts";
import { claimStateWord, sessionStateWord } from "../output/resources.ts";
import { bar } from "./cells.ts";

export const viewNames = ["devices", "claims", "sessions", "queues"] as const;
export type ViewName = (typeof viewNames)[number];

/** Colour of a line; its text contains the same information. */
export type Tone = "good" | "bad" | "dim" | "plain";

/** One column of a view. The least widths fit 80 columns; the remaining width goes to the columns that grow. */
export interface TopColumn<T> {
  readonly title: string;
  readonly width: number;
  readonly grows?: boolean;
  /** Shown only if there is room beside all other columns. Such columns come last. */
  readonly isExtra?: boolean;
  readonly align?: "left" | "right";
  /** The part that is shown if there is no room for the whole text. Default: the start. */
  readonly keep?: "start" | "end";
  readonly cell: (item: T) => string;
  /** The sort key: numbers in descending, texts in ascending order. */
  readonly key: (item: T) => number | string;
}

/** The rows of a view, for objects of any kind. */
export interface Rows {
  readonly columns: readonly TopColumn<number>[];
  readonly count: number;
  /** All cells of a row in one line, for the filter. */
  readonly textOf: (row: number) => string;
  readonly nameOf: (row: number) => string;
  readonly toneOf: (row: number) => Tone;
  /** Totals, for the head. */
  readonly summary: string;
}

/** Kind of object in `millpond describe`. */
export const describedAs: Readonly<Record<ViewName, string>> = {
  devices: "device",
  claims: "claim",
  sessions: "session",
  queues: "queue",
};

/** Fetches only the objects that a view shows. */
export async function fetchRows(connection: Connection, view: ViewName): Promise<Rows> {
  const nowSeconds = Math.floor(Date.now() / 1000);
  switch (view) {
    case "devices":
      return deviceRows((await connection.pool.listNodes({})).nodes);
    case "claims":
      return claimRows((await connection.claims.listClaims({})).claims, nowSeconds);
    case "sessions":
      return sessionRows((await connection.pool.listSessions({})).sessions, nowSeconds);
    case "queues":
      return queueRows((await connection.queues.listQueues({})).queues);
  }
}

function rowsOf<T>(
  items: readonly T[],
  columns: readonly TopColumn<T>[],
  more: {
    readonly nameOf: (item: T) => string;
    readonly toneOf: (item: T) => Tone;
    readonly summary: string;
  },
): Rows {
  const of = (row: number): T => {
    const item = items[row];
    if (item === undefined) throw new Error(`there is no row ${row}`);
    return item;
  };
  return {
    columns: columns.map(({ cell, key, ...column }) => ({
      ...column,
      cell: (row) => cell(of(row)),
      key: (row) => key(of(row)),
    })),
    count: items.length,
    textOf: (row) => columns.map(({ cell }) => cell(of(row))).join(" "),
    nameOf: (row) => more.nameOf(of(row)),
    toneOf: (row) => more.toneOf(of(row)),
    summary: more.summary,
  };
}

interface Placed {
  readonly node: Node;
  readonly device: Device;
}

function deviceState({ node, device }: Placed): string {
  // An unknown state must not look healthy.
  if (node.state !== NodeState.READY) return "Unknown";
  if (device.health !== DeviceHealth.HEALTHY) return "Unhealthy";
  return node.cordoned || device.cordoned ? "Cordoned" : "OK";
}

function partOf(part: bigint, whole: bigint): number {
  return whole === 0n ? 0 : Number(part) / Number(whole);
}

function percent(value: number | undefined): string {
  return value === undefined ? "?" : `${value}%`;
}

/** Returns the measured utilisation of a device; undefined: unknown, as on a node that is not in contact. */
function measured({ node, device }: Placed): number | undefined {
  return node.state === NodeState.READY ? device.usedComputePercent : undefined;
}

const deviceTones: Readonly<Record<string, Tone>> = { OK: "good", Unhealthy: "bad" };

const cardColumns: readonly TopColumn<Placed>[] = [
  {
    title: "TEMP",
    width: 4,
    align: "right",
    isExtra: true,
    cell: ({ device: { card } }) =>
      card?.temperatureCelsius === undefined ? "-" : `${card.temperatureCelsius}C`,
    key: ({ device }) => device.card?.temperatureCelsius ?? -1,
  },
  {
    title: "POWER",
    width: 8,
    align: "right",
    isExtra: true,
    cell: ({ device }) => power(device).replaceAll(" ", ""),
    key: ({ device }) => device.card?.powerMilliwatts ?? -1,
  },
  {
    title: "SM MHZ",
    width: 6,
    align: "right",
    isExtra: true,
    cell: ({ device }) => String(device.card?.smClockMhz ?? "-"),
    key: ({ device }) => device.card?.smClockMhz ?? -1,
  },
];

export function deviceRows(nodes: readonly Node[]): Rows {
  const items = nodes.flatMap((node) => node.devices.map((device) => ({ node, device })));
  const sum = (of: (placed: Placed) => bigint | number): number =>
    items.reduce((total, item) => total + Number(of(item)), 0);
  const granted = sum(({ device }) => device.allocatedComputePercent) / 100;
  const used = sum((placed) => measured(placed) ?? 0) / 100;
  const memory = [
    sum(({ device }) => device.usedMemoryBytes),
    sum(({ device }) => device.allocatedMemoryBytes),
    sum(({ device }) => device.memoryBytes),
  ].map((bytes) => formatBytes(BigInt(bytes)));
  return rowsOf<Placed>(
    items,
    [
      {
        title: "DEVICE",
        width: 14,
        grows: true,
        keep: "end",
        cell: ({ device }) => `${device.node}/${device.index}`,
        key: ({ device }) => `${device.node}/${String(device.index).padStart(3, "0")}`,
      },
      {
        title: "MODEL",
        width: 9,
        grows: true,
        cell: ({ device }) => device.name,
        key: ({ device }) => device.name,
      },
      {
        title: "COMPUTE",
        width: 8,
        cell: (item) => bar(scaled(measured(item)), item.device.allocatedComputePercent / 100, 8),
        key: (item) => measured(item) ?? -1,
      },
      {
        title: "USED",
        width: 5,
        align: "right",
        cell: (item) => percent(measured(item)),
        key: (item) => measured(item) ?? -1,
      },
      {
        title: "GRANTED",
        width: 7,
        align: "right",
        cell: ({ device }) => `${device.allocatedComputePercent}%`,
        key: ({ device }) => device.allocatedComputePercent,
      },
      {
        title: "MEMORY USED",
        width: 11,
        align: "right",
        cell: ({ device }) =>
          `${Math.round(partOf(device.usedMemoryBytes, device.memoryBytes) * 100)}% ${formatBytes(device.usedMemoryBytes).replace(" ", "")}`,
        key: ({ device }) => Number(device.usedMemoryBytes),
      },
      {
        title: "GRANTED",
        width: 7,
        align: "right",
        cell: ({ device }) => `${Math.round(partOf(device.allocatedMemoryBytes, device.memoryBytes) * 100)}%`,
        key: ({ device }) => partOf(device.allocatedMemoryBytes, device.memoryBytes),
      },
      {
        title: "SESS",
        width: 4,
        align: "right",
        cell: ({ device }) => String(device.openSessions),
        key: ({ device }) => device.openSessions,
      },
      { title: "STATE", width: 5, cell: deviceState, key: deviceState },
      // Sent to administrators, and to tenants for a device that one of their claims has whole.
      ...(items.some(({ device }) => device.card !== undefined) ? cardColumns : []),
    ],
    {
      nameOf: ({ device }) => `${device.node}/${device.index}`,
      toneOf: (item) => deviceTones[deviceState(item)] ?? "dim",
      summary: `${countOf(items.length, "device")}: compute ${used.toFixed(1)} used, ${granted.toFixed(1)} granted; memory ${memory.join(" / ")}`,
    },
  );
}

function scaled(percentage: number | undefined): number | undefined {
  return percentage === undefined ? undefined : percentage / 100;
}

const claimTones: ReadonlyMap<ClaimState, Tone> = new Map([
  [ClaimState.BOUND, "good"],
  [ClaimState.FAILED, "bad"],
]);

export function claimRows(claims: readonly Claim[], nowSeconds: number): Rows {
  const count = (state: ClaimState): number => claims.filter((claim) => claim.state === state).length;
  return rowsOf(
    claims,
    [
      { title: "CLAIM", width: 16, grows: true, cell: (claim) => claim.name, key: (claim) => claim.name },
      {
        title: "STATE",
        width: 8,
        cell: (claim) => claimStateWord(claim.state),
        key: (claim) => claimStateWord(claim.state),
      },
      {
        title: "GPUS",
        width: 4,
        align: "right",
        cell: (claim) => String(claim.gpus),
        key: (claim) => claim.gpus,
      },
      {
        title: "MEMORY",
        width: 8,
        align: "right",
        cell: askedMemory,
        key: (claim) => Number(claim.memoryBytes),
      },
      {
        title: "COMPUTE",
        width: 7,
        align: "right",
        cell: (claim) => (claim.computePercent === 0 ? "auto" : `${claim.computePercent}%`),
        key: (claim) => claim.computePercent,
      },
      { title: "QUEUE", width: 8, cell: (claim) => claim.queue, key: (claim) => claim.queue },
      {
        title: "SESS",
        width: 4,
        align: "right",
        cell: (claim) => String(claim.openSessions),
        key: (claim) => claim.openSessions,
      },
      {
        title: "AGE",
        width: 5,
        align: "right",
        cell: (claim) => ageOf(claim.createdAt, nowSeconds),
        key: (claim) => nowSeconds - Number(claim.createdAt),
      },
      {
        title: "NODE",
        width: 6,
        grows: true,
        cell: (claim) => claim.allocation?.node ?? (claim.reason === "" ? "-" : claim.reason),
        key: (claim) => claim.allocation?.node ?? "",
      },
    ],
    {
      nameOf: (claim) => claim.name,
      toneOf: (claim) => claimTones.get(claim.state) ?? "dim",
      summary: `${countOf(claims.length, "claim")}: ${count(ClaimState.BOUND)} bound, ${count(ClaimState.PENDING)} waiting, ${count(ClaimState.DORMANT)} dormant`,
    },
  );
}

/** Returns the sum of the utilisation of all its devices; undefined: it is unknown for one of them. */
function sessionUse({ devices }: Session): number | undefined {
  return devices.some(({ computeUsedPercent }) => computeUsedPercent === undefined)
    ? undefined
    : devices.reduce((sum, { computeUsedPercent }) => sum + (computeUsedPercent ?? 0), 0);
}

export function sessionRows(sessions: readonly Session[], nowSeconds: number): Rows {
  const usedMemory = ({ devices }: Session): bigint =>
    devices.reduce((sum, { memoryUsedBytes }) => sum + memoryUsedBytes, 0n);
  const granted = ({ devices }: Session): number =>
    devices.reduce((sum, device) => sum + (device.granted?.computePercent ?? 0), 0);
  return rowsOf(
    sessions,
    [
      {
        title: "PID",
        width: 7,
        align: "right",
        cell: ({ clientPid }) => String(clientPid || "-"),
        key: ({ clientPid }) => clientPid,
      },
      {
        title: "PROGRAM",
        width: 9,
        grows: true,
        cell: ({ program }) => program || "-",
        key: ({ program }) => program,
      },
      { title: "CLAIM", width: 10, grows: true, cell: ({ claim }) => claim, key: ({ claim }) => claim },
      { title: "DEVICES", width: 8, grows: true, cell: sessionDevices, key: sessionDevices },
      {
        title: "USED",
        width: 5,
        align: "right",
        cell: (session) => percent(sessionUse(session)),
        key: (session) => sessionUse(session) ?? -1,
      },
      {
        title: "SHARE",
        width: 5,
        align: "right",
        cell: (session) => percent(granted(session)),
        key: granted,
      },
      {
        title: "MEMORY",
        width: 8,
        align: "right",
        cell: (session) => formatBytes(usedMemory(session)),
        key: (session) => Number(usedMemory(session)),
      },
      {
        title: "VIA",
        width: 3,
        cell: ({ transport }) => transport || "-",
        key: ({ transport }) => transport,
      },
      {
        title: "AGE",
        width: 5,
        align: "right",
        cell: ({ startedAt }) => ageOf(startedAt, nowSeconds),
        key: ({ startedAt }) => nowSeconds - Number(startedAt),
      },
      {
        title: "STATE",
        width: 9,
        cell: ({ state }) => sessionStateWord(state),
        key: ({ state }) => sessionStateWord(state),
      },
    ],
    {
      nameOf: ({ id }) => id,
      toneOf: ({ state }) => (sessionStateWord(state) === "connected" ? "plain" : "dim"),
      summary: `${countOf(sessions.length, "session")} of ${countOf(new Set(sessions.map(({ claim }) => claim)).size, "claim")}`,
    },
  );
}

export function queueRows(queues: readonly Queue[]): Rows {
  const waiting = queues.reduce((sum, { waitingClaims }) => sum + waitingClaims, 0);
  return rowsOf(
    queues,
    [
      { title: "QUEUE", width: 16, grows: true, cell: ({ name }) => name, key: ({ name }) => name },
      { title: "PARENT", width: 8, cell: ({ parent }) => parent || "-", key: ({ parent }) => parent },
      {
        title: "WEIGHT",
        width: 6,
        align: "right",
        cell: ({ weight }) => String(weight),
        key: ({ weight }) => weight,
      },
      {
        title: "WAITING",
        width: 7,
        align: "right",
        cell: ({ waitingClaims }) => String(waitingClaims),
        key: ({ waitingClaims }) => waitingClaims,
      },
      {
        title: "BOUND",
        width: 5,
        align: "right",
        cell: ({ boundClaims }) => String(boundClaims),
        key: ({ boundClaims }) => boundClaims,
      },
      {
        title: "GPUS",
        width: 6,
        align: "right",
        cell: ({ used }) => formatGpuMilli(used?.gpuMilli ?? 0n),
        key: ({ used }) => Number(used?.gpuMilli ?? 0n),
      },
      {
        title: "LIMIT",
        width: 10,
        grows: true,
        cell: ({ limit }) => quotaText(limit),
        key: ({ limit }) => quotaText(limit),
      },
    ],
    {
      nameOf: ({ name }) => name,
      toneOf: ({ waitingClaims }) => (waitingClaims > 0 ? "plain" : "dim"),
      summary: `${countOf(queues.length, "queue")}: ${waiting === 1 ? "1 claim waits" : `${waiting} claims wait`}`,
    },
  );
}
