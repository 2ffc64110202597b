// SPDX-License-Identifier: Apache-2.0

import { type Device, DeviceHealth, type Node, NodeState } from "@millpond/api/browser";
import { pool } from "./calls.ts";
import { remember } from "./history.ts";
import { useWatch } from "./watch.ts";

/** All nodes with their devices, for several views. */
export function useNodes() {
  return useWatch("nodes", async (signal) => {
    const { nodes } = await pool.listNodes({}, { signal });
    remember(nodes, Date.now());
    return nodes;
  });
}

/** A device with its node. */
export interface Gpu {
  readonly node: Node;
  readonly device: Device;
}

export function gpusOf(nodes: readonly Node[]): Gpu[] {
  return nodes.flatMap((node) => node.devices.map((device) => ({ node, device })));
}

export type GpuState = "ok" | "cordoned" | "unhealthy" | "unknown";

/** Returns the state of a device; an unknown state must not look healthy. */
export function gpuState({ node, device }: Gpu): GpuState {
  if (node.state !== NodeState.READY) {
    return "unknown";
  }
  if (device.health !== DeviceHealth.HEALTHY) {
    return "unhealthy";
  }
  return node.cordoned || device.cordoned ? "cordoned" : "ok";
}

/** Percent; undefined: unknown. */
export function measuredOf({ node, device }: Gpu): number | undefined {
  return node.state === NodeState.READY ? device.usedComputePercent : undefined;
}

export function usedMemoryOf({ node, device }: Gpu): bigint | undefined {
  return node.state === NodeState.READY ? device.usedMemoryBytes : undefined;
}
