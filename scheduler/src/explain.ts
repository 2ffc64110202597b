// SPDX-License-Identifier: Apache-2.0

// Why a claim is not placed, in one sentence with the numbers of the moment, without a full stop.

import { formatBytes } from "@millpond/api";
import { candidatesOn, isOpen, possibleOn } from "./filter.ts";
import { asksForWholeDevices, type ClaimRequest, shapeOf, shareOf } from "./request.ts";
import { type DeviceState, freeOf, type NodeState, type Snapshot } from "./snapshot.ts";

interface Placed {
  readonly node: NodeState;
  readonly device: DeviceState;
}

/** What a node says of itself, to whatever is asked. */
interface Census {
  /** Devices that take claims, if the node does. */
  readonly healthy: number;
  /** Those of them that somebody has something of. */
  readonly taken: number;
  /** The largest of all its devices. */
  readonly largest: DeviceState | undefined;
}

/** What a node has for a request. */
interface Supply {
  /** Devices that would do if nobody were on the node. */
  readonly possible: number;
  /** Devices that will do now. */
  readonly fitting: number;
  /** Of the healthy devices with enough free memory, the one with most compute free. */
  readonly mostCompute: DeviceState | undefined;
  /** Of the healthy devices the one with most memory free: in percent, and in bytes. */
  readonly mostPercent: DeviceState | undefined;
  readonly mostBytes: DeviceState | undefined;
}

interface Memory {
  readonly census: Census;
  /** By what is asked. */
  readonly supplies: Map<string, Supply>;
}

/** Requests with different shapes of which it is remembered what one node has for them. */
const maxRemembered = 64;

/** Claims wait in a pool that changes all the time, most nodes of which have not changed: those are other values. */
const memories = new WeakMap<NodeState, Memory>();

function memoryOf(node: NodeState): Memory {
  let memory = memories.get(node);
  if (memory === undefined) {
    const healthy = node.devices.filter(({ isHealthy }) => isHealthy);
    const census = {
      healthy: healthy.length,
      taken: healthy.filter(({ grants }) => grants.length > 0).length,
      largest: greatest(node.devices, ({ memoryBytes }) => memoryBytes),
    };
    memory = { census, supplies: new Map() };
    memories.set(node, memory);
  }
  return memory;
}

function supplyOf(node: NodeState, request: ClaimRequest): Supply {
  const { supplies } = memoryOf(node);
  const shape = shapeOf(request);
  let supply = supplies.get(shape);
  if (supply === undefined) {
    const healthy = node.devices.filter(({ isHealthy }) => isHealthy);
    const withMemory = healthy.filter(
      (device) => freeOf(device).memoryBytes >= shareOf(request, device).memoryBytes,
    );
    supply = {
      possible: possibleOn(node, request).length,
      fitting: candidatesOn(node, request).length,
      mostCompute: greatest(withMemory, (device) => freeOf(device).computePercent),
      mostPercent: greatest(healthy, freePercent),
      mostBytes: greatest(healthy, (device) => freeOf(device).memoryBytes),
    };
    if (supplies.size >= maxRemembered) {
      supplies.clear();
    }
    supplies.set(shape, supply);
  }
  return supply;
}

/**
 * Why no node of the pool could hold the claim even if it were empty; undefined when one could, or when there is no
 * node to judge by.
 */
export function explainImpossible(snapshot: Snapshot, request: ClaimRequest): string | undefined {
  const { nodes } = snapshot;
  if (nodes.length === 0 || nodes.some((node) => supplyOf(node, request).possible >= request.gpus)) {
    return undefined;
  }
  const possible = nodes.map((node) => ({ node, count: supplyOf(node, request).possible }));
  const total = possible.reduce((sum, { count }) => sum + count, 0);
  const largestNode = greatest(nodes, (node) => node.devices.length);
  if (largestNode === undefined || largestNode.devices.length < request.gpus) {
    const most = largestNode?.devices.length ?? 0;
    const all = nodes.reduce((sum, { devices }) => sum + devices.length, 0);
    return `no node has ${countOf(request.gpus, "device")}: the largest, ${largestNode?.name}, has ${most}${spanning(all, request)}`;
  }
  const largest = greatestPlaced(
    nodes,
    (node) => memoryOf(node).census.largest,
    ({ memoryBytes }) => memoryBytes,
  );
  if (largest !== undefined && total === 0) {
    return `no device has ${formatBytes(shareOf(request, largest.device).memoryBytes)}: the largest, ${label(largest)}, has ${formatBytes(largest.device.memoryBytes)}`;
  }
  const best = greatest(possible, ({ count }) => count);
  return `no node has ${countOf(request.gpus, "device")} of ${describeMemory(request)}: the most is ${best?.count} on ${best?.node.name}${spanning(total, request)}`;
}

/** Why the claim, which is not placed on this snapshot, has to wait. */
export function explainWaiting(snapshot: Snapshot, request: ClaimRequest): string {
  const { nodes } = snapshot;
  if (nodes.length === 0) {
    return "no node has joined the pool yet";
  }
  const impossible = explainImpossible(snapshot, request);
  if (impossible !== undefined) {
    return impossible;
  }
  const open = nodes.filter(isOpen);
  const count = open.reduce((sum, node) => sum + memoryOf(node).census.healthy, 0);
  if (count === 0) {
    return `no device of the pool takes claims now: ${describeClosed(nodes)}`;
  }
  const taken = open.reduce((sum, node) => sum + memoryOf(node).census.taken, 0);
  const closed = describeClosed(nodes);
  const context = `${taken} of ${countOf(count, "device")} ${taken === 1 ? "is" : "are"} taken${closed === "" ? "" : `; not counted: ${closed}`}`;
  return `${describeShortage(open, request)}; ${context}`;
}

function describeShortage(open: readonly NodeState[], request: ClaimRequest): string {
  const fitting = open.map((node) => ({ node, count: supplyOf(node, request).fitting }));
  const total = fitting.reduce((sum, { count }) => sum + count, 0);
  if (total > 0) {
    const best = greatest(fitting, ({ count }) => count);
    return `no node has ${countOf(request.gpus, "device")} with ${describeNeed(request)} free: the most is ${best?.count} on ${best?.node.name}${spanning(total, request)}`;
  }
  const mostCompute = greatestPlaced(
    open,
    (node) => supplyOf(node, request).mostCompute,
    (device) => freeOf(device).computePercent,
  );
  if (mostCompute !== undefined) {
    const { computePercent } = freeOf(mostCompute.device);
    return `no device has ${describeMemory(request)} and ${shareOf(request, mostCompute.device).computePercent} % of its compute free: of those with the memory ${label(mostCompute)} has most compute free, ${computePercent} %`;
  }
  if (asksForWholeDevices(request) || request.memoryPercent > 0) {
    const most = greatestPlaced(open, (node) => supplyOf(node, request).mostPercent, freePercent);
    const shown = most === undefined ? "" : `: most is ${freePercent(most.device)} % on ${label(most)}`;
    return `no device has ${describeMemory(request)} free${shown}`;
  }
  const most = greatestPlaced(
    open,
    (node) => supplyOf(node, request).mostBytes,
    (device) => freeOf(device).memoryBytes,
  );
  const shown =
    most === undefined
      ? ""
      : `: largest free is ${formatBytes(freeOf(most.device).memoryBytes)} on ${label(most)}`;
  return `no device has ${describeMemory(request)} free${shown}`;
}

function describeNeed(request: ClaimRequest): string {
  const compute = request.computePercent === 0 ? "" : ` and ${request.computePercent} % of compute`;
  return `${describeMemory(request)}${compute}`;
}

function describeMemory(request: ClaimRequest): string {
  if (asksForWholeDevices(request)) {
    return "all of its memory";
  }
  return request.memoryPercent > 0
    ? `${request.memoryPercent} % of its memory`
    : formatBytes(request.memoryBytes);
}

function describeClosed(nodes: readonly NodeState[]): string {
  const lost = nodes.filter((node) => !node.isReady).length;
  const cordoned = nodes.filter((node) => node.isReady && node.isCordoned).length;
  const ill = nodes
    .filter(isOpen)
    .reduce((sum, node) => sum + node.devices.length - memoryOf(node).census.healthy, 0);
  const bare = nodes.filter((node) => isOpen(node) && node.devices.length === 0).length;
  return [
    lost > 0 ? `${countOf(lost, "node")} not ready` : "",
    cordoned > 0 ? `${countOf(cordoned, "node")} cordoned` : "",
    ill > 0 ? `${countOf(ill, "device")} unhealthy` : "",
    bare > 0 ? `${countOf(bare, "node")} without devices` : "",
  ]
    .filter((part) => part !== "")
    .join(", ");
}

/** Says so when the pool has enough, but on several nodes. */
function spanning(total: number, request: ClaimRequest): string {
  return total >= request.gpus ? ` (${total} in the whole pool, but one claim cannot span nodes yet)` : "";
}

function label({ node, device }: Placed): string {
  return `${node.name}/${device.index}`;
}

function freePercent(device: DeviceState): number {
  return Number((freeOf(device).memoryBytes * 100n) / device.memoryBytes);
}

function countOf(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** The first of those with the greatest value. */
function greatest<T>(items: readonly T[], valueOf: (item: T) => bigint | number): T | undefined {
  let best: T | undefined;
  for (const item of items) {
    if (best === undefined || valueOf(item) > valueOf(best)) {
      best = item;
    }
  }
  return best;
}

/** The first device with the greatest value, of what the nodes put up. */
function greatestPlaced(
  nodes: readonly NodeState[],
  bestOf: (node: NodeState) => DeviceState | undefined,
  valueOf: (device: DeviceState) => bigint | number,
): Placed | undefined {
  let best: Placed | undefined;
  for (const node of nodes) {
    const device = bestOf(node);
    if (device !== undefined && (best === undefined || valueOf(device) > valueOf(best.device))) {
      best = { node, device };
    }
  }
  return best;
}
