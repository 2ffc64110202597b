// SPDX-License-Identifier: Apache-2.0

// Explains why a claim is not placed, with the current numbers.

import { type Reason, reason } from "@millpond/api";
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

/** A node's offer for a request, counted over the devices that the constraints allow. */
interface Supply {
  readonly allowed: number;
  /** Devices that would fit on an empty node. */
  readonly possible: number;
  readonly largest: DeviceState | undefined;
  /** Whether the claims on the node allow the claim beside them. */
  readonly isNear: boolean;
  readonly unhealthy: number;
  /** Healthy devices that are cordoned individually. */
  readonly cordoned: number;
  readonly usable: number;
  /** Usable devices that are partly or wholly allocated. */
  readonly taken: number;
  /** Devices that fit now. */
  readonly fitting: number;
  /** The usable device with the most free compute, among those with enough free memory. */
  readonly mostCompute: DeviceState | undefined;
  /** The usable device with the most free memory: in percent, and in bytes. */
  readonly mostPercent: DeviceState | undefined;
  readonly mostBytes: DeviceState | undefined;
}

/** In a pool with many models, only the first ones are named. */
const maxModelsNamed = 4;

/** Upper bound on the request shapes whose supply is cached for one node. */
const maxRemembered = 64;

/** Cached by the node object: claims wait in a pool that changes all the time, but most node objects stay the same. */
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

/** Adds up the supplies of the nodes. */
function sum(
  nodes: readonly NodeState[],
  request: ClaimRequest,
  valueOf: (supply: Supply, node: NodeState) => number,
): number {
  return nodes.reduce((total, node) => total + valueOf(supplyOf(node, request), node), 0);
}

/**
 * Why no node of the pool could hold the claim even if it were empty. Undefined when a node could, or when the pool has no
 * nodes.
 */
export function explainImpossible(snapshot: Snapshot, request: ClaimRequest): Reason | undefined {
  const { nodes } = snapshot;
  if (nodes.length === 0 || nodes.some((node) => supplyOf(node, request).possible >= request.gpus)) {
    return undefined;
  }
  const allowed = sum(nodes, request, (supply) => supply.allowed);
  const all = nodes.reduce((total, { devices }) => total + devices.length, 0);
  if (allowed === 0 && all > 0) {
    return explainUnmet(nodes, request.constraints);
  }
  const { gpus } = request;
  const isRestricted = allowed < all;
  const largestNode = greatest(nodes, (node) => supplyOf(node, request).allowed);
  const most = largestNode === undefined ? 0 : supplyOf(largestNode, request).allowed;
  if (most < request.gpus) {
    return reason("too-few-devices", {
      gpus,
      isRestricted,
      node: largestNode?.name,
      most,
      inPool: allowed,
    });
  }
  const total = sum(nodes, request, ({ possible }) => possible);
  const largest = greatestPlaced(
    nodes,
    (node) => supplyOf(node, request).largest,
    ({ memoryBytes }) => memoryBytes,
  );
  if (largest !== undefined && total === 0) {
    return reason("devices-too-small", {
      isRestricted,
      needBytes: shareOf(request, largest.device).memoryBytes,
      device: label(largest),
      deviceBytes: largest.device.memoryBytes,
    });
  }
  const best = greatest(nodes, (node) => supplyOf(node, request).possible);
  const count = best === undefined ? 0 : supplyOf(best, request).possible;
  return reason("too-few-large-devices", {
    gpus,
    isRestricted,
    ...memoryOf(request),
    most: count,
    node: best?.name,
    inPool: total,
  });
}

/** The constraints that no device meets. */
function explainUnmet(nodes: readonly NodeState[], constraints: Constraints = {}): Reason {
  const devices = nodes.flatMap((node) => node.devices);
  const { nodeLabels, onlyHost, models, onlyModels, minComputeCapability } = constraints;
  const isNode = (one: Constraints) => nodes.some((node) => allowsNode(one, node));
  const isDevice = (one: Constraints) => devices.some((device) => allowsDevice(one, device));
  if (nodeLabels !== undefined && !isNode({ nodeLabels })) {
    return reason("no-node-with-labels", { labels: nodeLabels });
  }
  if (onlyHost !== undefined && !isNode({ onlyHost })) {
    return reason("no-node-of-host");
  }
  if (models !== undefined && !isDevice({ models })) {
    return reason("no-device-of-model", { models, ...modelsOf(devices) });
  }
  if (onlyModels !== undefined && !isDevice({ onlyModels })) {
    return reason("no-device-of-told-model", { models: onlyModels, ...modelsOf(devices) });
  }
  if (minComputeCapability !== undefined && !isDevice({ minComputeCapability })) {
    return reason("no-device-of-capability", { capability: minComputeCapability });
  }
  return reason("constraints-unmet");
}

function modelsOf(devices: readonly DeviceState[]) {
  const models = [...new Set(devices.map(({ model }) => model ?? "").filter((model) => model !== ""))].sort();
  return { available: models.slice(0, maxModelsNamed), hasMore: models.length > maxModelsNamed };
}

/** Why the claim, which is not placed on this snapshot, must wait. */
export function explainWaiting(snapshot: Snapshot, asked: ClaimRequest): Reason {
  const { nodes } = snapshot;
  if (nodes.length === 0) {
    return reason("no-nodes");
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
    return reason("none-open", {
      isRestricted: possible.length < nodes.length,
      ...closedOf(possible, request),
    });
  }
  const near = open.filter((node) => supplyOf(node, request).isNear);
  const count = sum(near, request, ({ usable }) => usable);
  if (count === 0) {
    return reason("affinity-excludes", { nodes: open.length });
  }
  return reason("room-short", {
    shortage: explainShortage(near, request),
    taken: sum(near, request, (supply) => supply.taken),
    devices: count,
    ...closedOf(possible, request),
    repellingNodes: open.length - near.length,
    forbiddenDevices: sum(nodes, request, ({ allowed }, { devices }) => devices.length - allowed),
  });
}

function explainShortage(open: readonly NodeState[], request: ClaimRequest): Reason {
  const total = sum(open, request, ({ fitting }) => fitting);
  if (total > 0) {
    const best = greatest(open, (node) => supplyOf(node, request).fitting);
    const count = best === undefined ? 0 : supplyOf(best, request).fitting;
    return reason("few-devices-free", {
      gpus: request.gpus,
      ...memoryOf(request),
      computePercent: request.computePercent,
      most: count,
      node: best?.name,
      inPool: total,
    });
  }
  const mostCompute = greatestPlaced(
    open,
    (node) => supplyOf(node, request).mostCompute,
    (device) => freeOf(device).computePercent,
  );
  if (mostCompute !== undefined) {
    return reason("compute-taken", {
      ...memoryOf(request),
      computePercent: shareOf(request, mostCompute.device).computePercent,
      device: label(mostCompute),
      freePercent: freeOf(mostCompute.device).computePercent,
    });
  }
  if (asksForWholeDevices(request) || request.memoryPercent > 0) {
    const most = greatestPlaced(open, (node) => supplyOf(node, request).mostPercent, freePercent);
    return reason("share-taken", {
      memoryPercent: memoryOf(request).memoryPercent,
      device: most && label(most),
      freePercent: most && freePercent(most.device),
    });
  }
  const most = greatestPlaced(
    open,
    (node) => supplyOf(node, request).mostBytes,
    (device) => freeOf(device).memoryBytes,
  );
  return reason("memory-taken", {
    memoryBytes: request.memoryBytes,
    device: most && label(most),
    freeBytes: most && freeOf(most.device).memoryBytes,
  });
}

/** The memory requested of each device: bytes, percent, or the whole device. */
function memoryOf(request: ClaimRequest) {
  return {
    memoryBytes: asksForWholeDevices(request) || request.memoryPercent > 0 ? undefined : request.memoryBytes,
    memoryPercent:
      asksForWholeDevices(request) || request.memoryPercent === 0 ? undefined : request.memoryPercent,
  };
}

/** The nodes and devices that accept no claims at present. */
function closedOf(nodes: readonly NodeState[], request: ClaimRequest) {
  const open = nodes.filter(isOpen);
  return {
    lostNodes: nodes.filter((node) => !node.isReady).length,
    cordonedNodes: nodes.filter((node) => node.isReady && node.isCordoned).length,
    cordonedDevices: sum(open, request, ({ cordoned }) => cordoned),
    unhealthyDevices: sum(open, request, ({ unhealthy }) => unhealthy),
  };
}

function label({ node, device }: Placed): string {
  return `${node.name}/${device.index}`;
}

/** The largest part in percent that a further claim can have. */
function freePercent(device: DeviceState): number {
  const { memoryBytes } = freeOf(device);
  // Shares in percent include the overhead; alone on a device, a claim has no overhead in addition to its memory.
  const overhead = device.grants.length === 0 || memoryBytes === 0n ? 0n : (device.overheadBytes ?? 0n);
  return Number(((memoryBytes + overhead) * 100n) / device.memoryBytes);
}

/** The first of the items with the greatest value. */
function greatest<T>(items: readonly T[], valueOf: (item: T) => bigint | number): T | undefined {
  let best: T | undefined;
  for (const item of items) {
    if (best === undefined || valueOf(item) > valueOf(best)) {
      best = item;
    }
  }
  return best;
}

/** The first device with the greatest value, among the best ones of the nodes. */
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
