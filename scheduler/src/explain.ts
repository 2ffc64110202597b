// SPDX-License-Identifier: Apache-2.0

// Why a claim is not placed, in one sentence with the numbers of the moment, without a full stop.

import { formatBytes } from "@millpond/api";
import { candidatesOn, isOpen, possibleOn } from "./filter.ts";
import { asksForWholeDevices, type ClaimRequest, shareOf } from "./request.ts";
import { type DeviceState, freeOf, type NodeState, type Snapshot } from "./snapshot.ts";

interface Placed {
  readonly node: NodeState;
  readonly device: DeviceState;
}

/**
 * Why no node of the pool could hold the claim even if it were empty; undefined when one could, or when there is no
 * node to judge by.
 */
export function explainImpossible(snapshot: Snapshot, request: ClaimRequest): string | undefined {
  const { nodes } = snapshot;
  const possible = nodes.map((node) => ({ node, count: possibleOn(node, request).length }));
  if (nodes.length === 0 || possible.some(({ count }) => count >= request.gpus)) {
    return undefined;
  }
  const devices = devicesOf(nodes);
  const largestNode = greatest(nodes, (node) => node.devices.length);
  if (largestNode === undefined || largestNode.devices.length < request.gpus) {
    const most = largestNode?.devices.length ?? 0;
    return `no node has ${countOf(request.gpus, "device")}: the largest, ${largestNode?.name}, has ${most}${spanning(devices.length, request)}`;
  }
  const largest = greatest(devices, ({ device }) => device.memoryBytes);
  if (largest !== undefined && possible.every(({ count }) => count === 0)) {
    return `no device has ${formatBytes(shareOf(request, largest.device).memoryBytes)}: the largest, ${label(largest)}, has ${formatBytes(largest.device.memoryBytes)}`;
  }
  const best = greatest(possible, ({ count }) => count);
  const total = possible.reduce((sum, { count }) => sum + count, 0);
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
  const devices = devicesOf(open).filter(({ device }) => device.isHealthy);
  if (devices.length === 0) {
    return `no device of the pool takes claims now: ${describeClosed(nodes)}`;
  }
  const taken = devices.filter(({ device }) => device.grants.length > 0).length;
  const closed = describeClosed(nodes);
  const context = `${taken} of ${countOf(devices.length, "device")} ${taken === 1 ? "is" : "are"} taken${closed === "" ? "" : `; not counted: ${closed}`}`;
  return `${describeShortage(open, devices, request)}; ${context}`;
}

function describeShortage(
  open: readonly NodeState[],
  devices: readonly Placed[],
  request: ClaimRequest,
): string {
  const fitting = open.map((node) => ({ node, count: candidatesOn(node, request).length }));
  const total = fitting.reduce((sum, { count }) => sum + count, 0);
  if (total > 0) {
    const best = greatest(fitting, ({ count }) => count);
    return `no node has ${countOf(request.gpus, "device")} with ${describeNeed(request)} free: the most is ${best?.count} on ${best?.node.name}${spanning(total, request)}`;
  }
  const withMemory = devices.filter(
    ({ device }) => freeOf(device).memoryBytes >= shareOf(request, device).memoryBytes,
  );
  const mostCompute = greatest(withMemory, ({ device }) => freeOf(device).computePercent);
  if (mostCompute !== undefined) {
    const { computePercent } = freeOf(mostCompute.device);
    return `no device has ${describeMemory(request)} and ${shareOf(request, mostCompute.device).computePercent} % of its compute free: of those with the memory ${label(mostCompute)} has most compute free, ${computePercent} %`;
  }
  if (asksForWholeDevices(request) || request.memoryPercent > 0) {
    const most = greatest(devices, ({ device }) => freePercent(device));
    const shown = most === undefined ? "" : `: most is ${freePercent(most.device)} % on ${label(most)}`;
    return `no device has ${describeMemory(request)} free${shown}`;
  }
  const most = greatest(devices, ({ device }) => freeOf(device).memoryBytes);
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
  const ill = devicesOf(nodes.filter(isOpen)).filter(({ device }) => !device.isHealthy).length;
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

function devicesOf(nodes: readonly NodeState[]): Placed[] {
  return nodes.flatMap((node) => node.devices.map((device) => ({ node, device })));
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
