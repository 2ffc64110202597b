// SPDX-License-Identifier: Apache-2.0

// Why a claim is not placed, in one sentence with the numbers of the moment, without a full stop.

import { formatBytes, formatLabels, formatNeed } from "@millpond/api";
import {
  allowsDevice,
  allowsNeighbours,
  allowsNode,
  type Constraints,
  settleAffinity,
} from "./constraints.ts";
import { candidatesOn, isOpen, possibleOn, takesClaims } from "./filter.ts";
import { asksForWholeDevices, type ClaimRequest, shapeOf, shareOf } from "./request.ts";
import { type DeviceState, freeOf, type NodeState, type Snapshot } from "./snapshot.ts";

interface Placed {
  readonly node: NodeState;
  readonly device: DeviceState;
}

/** What a node has for a request: of its devices those that the constraints allow. */
interface Supply {
  readonly allowed: number;
  /** Of these, the ones that would do if nobody were on the node. */
  readonly possible: number;
  readonly largest: DeviceState | undefined;
  /** Whether those who are on the node allow it beside them. */
  readonly isNear: boolean;
  readonly unhealthy: number;
  /** Healthy ones that are cordoned by themselves. */
  readonly cordoned: number;
  readonly usable: number;
  /** Usable ones that somebody has something of. */
  readonly taken: number;
  /** Devices that will do now. */
  readonly fitting: number;
  /** Of the usable ones with enough free memory, the one with most compute free. */
  readonly mostCompute: DeviceState | undefined;
  /** Of the usable ones the one with most memory free: in percent, and in bytes. */
  readonly mostPercent: DeviceState | undefined;
  readonly mostBytes: DeviceState | undefined;
}

/** Of a pool with many models the first are named. */
const maxModelsNamed = 4;

/** Requests with different shapes of which it is remembered what one node has for them. */
const maxRemembered = 64;

/** Claims wait in a pool that changes all the time, most nodes of which have not changed: those are other values. */
const supplies = new WeakMap<NodeState, Map<string, Supply>>();

function supplyOf(node: NodeState, request: ClaimRequest): Supply {
  const known = supplies.get(node) ?? new Map<string, Supply>();
  supplies.set(node, known);
  const shape = shapeOf(request);
  let supply = known.get(shape);
  if (supply === undefined) {
    supply = makeSupply(node, request);
    if (known.size >= maxRemembered) {
      known.clear();
    }
    known.set(shape, supply);
  }
  return supply;
}

function makeSupply(node: NodeState, request: ClaimRequest): Supply {
  const { constraints } = request;
  const isAllowed = allowsNode(constraints, node);
  const allowed = isAllowed ? node.devices.filter((device) => allowsDevice(constraints, device)) : [];
  const usable = allowed.filter(takesClaims);
  const unhealthy = allowed.filter(({ isHealthy }) => !isHealthy).length;
  const withMemory = usable.filter(
    (device) => freeOf(device).memoryBytes >= shareOf(request, device).memoryBytes,
  );
  return {
    allowed: allowed.length,
    possible: possibleOn(node, request).length,
    largest: greatest(allowed, ({ memoryBytes }) => memoryBytes),
    isNear: allowsNeighbours(constraints, node),
    unhealthy,
    cordoned: allowed.length - usable.length - unhealthy,
    usable: usable.length,
    taken: usable.filter(({ grants }) => grants.length > 0).length,
    fitting: candidatesOn(node, request).length,
    mostCompute: greatest(withMemory, (device) => freeOf(device).computePercent),
    mostPercent: greatest(usable, freePercent),
    mostBytes: greatest(usable, (device) => freeOf(device).memoryBytes),
  };
}

/** Sums up what the nodes have. */
function sum(
  nodes: readonly NodeState[],
  request: ClaimRequest,
  valueOf: (supply: Supply, node: NodeState) => number,
): number {
  return nodes.reduce((total, node) => total + valueOf(supplyOf(node, request), node), 0);
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
  const allowed = sum(nodes, request, (supply) => supply.allowed);
  const all = nodes.reduce((total, { devices }) => total + devices.length, 0);
  if (allowed === 0 && all > 0) {
    return explainUnmet(nodes, request.constraints);
  }
  const which = allowed < all ? " that it may use" : "";
  const largestNode = greatest(nodes, (node) => supplyOf(node, request).allowed);
  const most = largestNode === undefined ? 0 : supplyOf(largestNode, request).allowed;
  if (most < request.gpus) {
    return `no node has ${countOf(request.gpus, "device")}${which}: the largest, ${largestNode?.name}, has ${most}${spanning(allowed, request)}`;
  }
  const total = sum(nodes, request, ({ possible }) => possible);
  const largest = greatestPlaced(
    nodes,
    (node) => supplyOf(node, request).largest,
    ({ memoryBytes }) => memoryBytes,
  );
  if (largest !== undefined && total === 0) {
    return `no device${which} has ${formatNeed(shareOf(request, largest.device).memoryBytes)}: the largest, ${label(largest)}, has ${formatBytes(largest.device.memoryBytes)}`;
  }
  const best = greatest(nodes, (node) => supplyOf(node, request).possible);
  const count = best === undefined ? 0 : supplyOf(best, request).possible;
  return `no node has ${countOf(request.gpus, "device")}${which} of ${describeMemory(request)}: the most is ${count} on ${best?.name}${spanning(total, request)}`;
}

/** Which of the constraints no device meets. */
function explainUnmet(nodes: readonly NodeState[], constraints: Constraints = {}): string {
  const devices = nodes.flatMap((node) => node.devices);
  const { nodeLabels, onlyHost, models, onlyModels, minComputeCapability } = constraints;
  const isNode = (one: Constraints) => nodes.some((node) => allowsNode(one, node));
  const isDevice = (one: Constraints) => devices.some((device) => allowsDevice(one, device));
  if (nodeLabels !== undefined && !isNode({ nodeLabels })) {
    return `no node has the labels ${formatLabels(nodeLabels)}`;
  }
  if (onlyHost !== undefined && !isNode({ onlyHost })) {
    return "no node is on the machine of the program";
  }
  if (models !== undefined && !isDevice({ models })) {
    return `no device is of the model ${models.join(" or ")}: there is ${describeModels(devices)}`;
  }
  if (onlyModels !== undefined && !isDevice({ onlyModels })) {
    return `no device is of the model that its program was told, ${onlyModels.join(" or ")}: there is ${describeModels(devices)}`;
  }
  if (minComputeCapability !== undefined && !isDevice({ minComputeCapability })) {
    return `no device has compute capability ${minComputeCapability}`;
  }
  return "no device meets all of its constraints together";
}

function describeModels(devices: readonly DeviceState[]): string {
  const models = [...new Set(devices.map(({ model }) => model ?? "").filter((model) => model !== ""))].sort();
  const more = models.length > maxModelsNamed ? ", …" : "";
  return models.length === 0 ? "none" : `${models.slice(0, maxModelsNamed).join(", ")}${more}`;
}

/** Why the claim, which is not placed on this snapshot, has to wait. */
export function explainWaiting(snapshot: Snapshot, asked: ClaimRequest): string {
  const { nodes } = snapshot;
  if (nodes.length === 0) {
    return "no node has joined the pool yet";
  }
  const impossible = explainImpossible(snapshot, asked);
  if (impossible !== undefined) {
    return impossible;
  }
  const constraints = settleAffinity(asked.constraints, nodes);
  const request =
    constraints === undefined || constraints === asked.constraints ? asked : { ...asked, constraints };
  const possible = nodes.filter((node) => supplyOf(node, request).allowed > 0);
  const open = possible.filter(isOpen);
  if (sum(open, request, ({ usable }) => usable) === 0) {
    return `no device ${possible.length < nodes.length ? "that it may use" : "of the pool"} takes claims now: ${describeClosed(possible, request)}`;
  }
  const near = open.filter((node) => supplyOf(node, request).isNear);
  const count = sum(near, request, ({ usable }) => usable);
  if (count === 0) {
    return `its affinity keeps it from ${countOf(open.length, "node")} that would do`;
  }
  const taken = sum(near, request, (supply) => supply.taken);
  const left = [
    describeClosed(possible, request),
    near.length < open.length
      ? `${countOf(open.length - near.length, "node")} that its affinity keeps it from`
      : "",
    describeForbidden(nodes, request),
  ].filter((part) => part !== "");
  const context = `${taken} of ${countOf(count, "device")} ${taken === 1 ? "is" : "are"} taken${left.length === 0 ? "" : `; not counted: ${left.join(", ")}`}`;
  return `${describeShortage(near, request)}; ${context}`;
}

function describeForbidden(nodes: readonly NodeState[], request: ClaimRequest): string {
  const others = sum(nodes, request, ({ allowed }, { devices }) => devices.length - allowed);
  return others === 0 ? "" : `${countOf(others, "device")} that it may not use`;
}

function describeShortage(open: readonly NodeState[], request: ClaimRequest): string {
  const total = sum(open, request, ({ fitting }) => fitting);
  if (total > 0) {
    const best = greatest(open, (node) => supplyOf(node, request).fitting);
    const count = best === undefined ? 0 : supplyOf(best, request).fitting;
    return `no node has ${countOf(request.gpus, "device")} with ${describeNeed(request)} free: the most is ${count} on ${best?.name}${spanning(total, request)}`;
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
    : formatNeed(request.memoryBytes);
}

function describeClosed(nodes: readonly NodeState[], request: ClaimRequest): string {
  const lost = nodes.filter((node) => !node.isReady).length;
  const cordoned = nodes.filter((node) => node.isReady && node.isCordoned).length;
  const ill = sum(nodes.filter(isOpen), request, ({ unhealthy }) => unhealthy);
  const closed = sum(nodes.filter(isOpen), request, (supply) => supply.cordoned);
  return [
    lost > 0 ? `${countOf(lost, "node")} not ready` : "",
    cordoned > 0 ? `${countOf(cordoned, "node")} cordoned` : "",
    closed > 0 ? `${countOf(closed, "device")} cordoned` : "",
    ill > 0 ? `${countOf(ill, "device")} unhealthy` : "",
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
