// SPDX-License-Identifier: Apache-2.0

// Where a claim would go now: the controller's own scheduler, over the nodes that the page knows. Queues, quotas and the
// labels of other claims are ignored.

import { mayKnowAll, minMemoryBytes, type Node, NodeState, renderReason } from "@millpond/api/browser";
import {
  applyStatement,
  type ClaimRequest,
  type DeviceState,
  explainWaiting,
  freeOf,
  place,
  type NodeState as SchedulerNode,
  type Snapshot,
} from "@millpond/scheduler";
import { type Gpu, gpuState } from "./nodes.ts";

export interface WhatIfRequest {
  readonly gpus: number;
  /** 0: whole devices. */
  readonly memoryBytes: bigint;
  /** 0: in proportion to the memory. */
  readonly computePercent: number;
  /** Part of a model's name; empty: any. */
  readonly model: string;
}

export type WhatIfResult =
  | {
      readonly kind: "placed";
      readonly node: string;
      readonly uuids: ReadonlySet<string>;
      readonly indexes: readonly number[];
      /** How many such claims fit, including this one. */
      readonly count: number;
      /** Counting stopped before the pool was full. */
      readonly isLeast: boolean;
    }
  | { readonly kind: "waits"; readonly reason: string };

/** Counting how many fit takes no longer than a frame or two. */
const countingMs = 25;

export function whatIf(nodes: readonly Node[], wish: WhatIfRequest): WhatIfResult {
  let snapshot = snapshotOf(nodes);
  const first = place(snapshot, requestOf(wish, 0));
  if (first === undefined) {
    return { kind: "waits", reason: renderReason(explainWaiting(snapshot, requestOf(wish, 0)), mayKnowAll) };
  }
  const end = performance.now() + countingMs;
  let count = 0;
  let isLeast = false;
  for (let next: typeof first | undefined = first; next !== undefined; ) {
    count += 1;
    isLeast = performance.now() > end;
    if (isLeast) {
      break;
    }
    snapshot = applyStatement(snapshot, next);
    next = place(snapshot, requestOf(wish, count));
  }
  return {
    kind: "placed",
    node: first.node,
    uuids: new Set(first.devices.map(({ uuid }) => uuid)),
    indexes: first.devices.map(({ index }) => index),
    count,
    isLeast,
  };
}

function requestOf({ model, ...size }: WhatIfRequest, number: number): ClaimRequest {
  const isWhole = size.memoryBytes === 0n;
  return {
    claim: `what-if-${number}`,
    ...size,
    memoryPercent: 0,
    constraints: {
      ...(model === "" ? {} : { models: [model] }),
      ...(isWhole ? { isExclusive: true } : {}),
    },
  };
}

function snapshotOf(nodes: readonly Node[]): Snapshot {
  return { nodes: nodes.map(toSchedulerNode) };
}

function toSchedulerNode(node: Node): SchedulerNode {
  return {
    name: node.name,
    isReady: node.state === NodeState.READY,
    isCordoned: node.cordoned,
    labels: node.labels,
    devices: node.devices.map((device) => toSchedulerDevice({ node, device })),
  };
}

/** The grants of all claims together count as one here. */
function toSchedulerDevice(gpu: Gpu): DeviceState {
  const { device } = gpu;
  const { allocatedMemoryBytes: held, allocatedComputePercent: computePercent } = device;
  const isHeld = held > 0n || computePercent > 0 || device.virtualGpus > 0;
  const least = held > minMemoryBytes ? held : minMemoryBytes;
  const memoryBytes = least + BigInt(Math.max(0, device.virtualGpus - 1)) * device.overheadBytes;
  return {
    uuid: device.uuid,
    index: device.index,
    memoryBytes: device.memoryBytes,
    overheadBytes: device.overheadBytes,
    model: device.name,
    computeCapability: device.computeCapability,
    topology: {
      ...(device.nvlinkDomain === "" ? {} : { nvlinkDomain: device.nvlinkDomain }),
      ...(device.pcieSwitch === "" ? {} : { pcieSwitch: device.pcieSwitch }),
      ...(device.numaNode === "" ? {} : { numaNode: device.numaNode }),
    },
    isCordoned: device.cordoned,
    isHealthy: gpuState(gpu) !== "unhealthy",
    grants: isHeld ? [{ claim: "", memoryBytes, computePercent }] : [],
  };
}

/** Free capacity of a model, for claims of one device. */
export interface Room {
  readonly model: string;
  readonly gpus: number;
  /** Healthy, uncordoned devices that no claim uses. */
  readonly whole: number;
  readonly freeMemory: bigint;
  /** The largest free memory of one device, and the compute that is free beside it. */
  readonly largestMemory: bigint;
  readonly largestCompute: number;
  /** Free memory on devices that are partly used, as a fraction of all free memory, 0 to 1. */
  readonly fragmented: number;
}

/** Only devices that accept claims now count as free. */
export function roomByModel(gpus: readonly Gpu[]): Room[] {
  const models = Map.groupBy(gpus, ({ device }) => device.name);
  return [...models]
    .map(([model, all]) => {
      const open = all.filter((gpu) => gpuState(gpu) === "ok").map(toSchedulerDevice);
      const free = open.map((device) => ({ ...freeOf(device), isWhole: device.grants.length === 0 }));
      const freeMemory = free.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0n);
      const inPieces = free.reduce((sum, each) => (each.isWhole ? sum : sum + each.memoryBytes), 0n);
      const largest = free.toSorted((a, b) => Number(b.memoryBytes - a.memoryBytes))[0];
      return {
        model,
        gpus: all.length,
        whole: free.filter(({ isWhole }) => isWhole).length,
        freeMemory,
        largestMemory: largest?.memoryBytes ?? 0n,
        largestCompute: largest?.computePercent ?? 0,
        fragmented: freeMemory === 0n ? 0 : Number(inPieces) / Number(freeMemory),
      };
    })
    .toSorted((a, b) => b.gpus - a.gpus);
}
