// SPDX-License-Identifier: Apache-2.0

// What the scheduler knows: an immutable picture of the pool. Whoever changes it gets a new one that shares the rest.

import type { Labels } from "./constraints.ts";
import type { Workload } from "./placement/workload.ts";
import type { Topology } from "./topology.ts";

/** The compute of a device, in percent. */
export const deviceComputePercent = 100;

/** What a claim holds, or holds no longer but may still use, of a device. */
export interface Grant {
  readonly claim: string;
  /** At least 1 MiB. */
  readonly memoryBytes: bigint;
  /** 1 to 100; 0 for best effort. */
  readonly computePercent: number;
  /** Labels of the claim. Absent: none. */
  readonly labels?: Labels;
}

export interface DeviceState {
  /** Unique on its node. */
  readonly uuid: string;
  /** Ordinal on its node. */
  readonly index: number;
  readonly memoryBytes: bigint;
  /** Model name, as its driver says it. */
  readonly model?: string;
  /** `major.minor`. */
  readonly computeCapability?: string;
  /** Where it sits on its node. Absent: not reported. */
  readonly topology?: Topology;
  /** A device that is cordoned keeps its grants and gets no new ones. */
  readonly isCordoned?: boolean;
  /** An unhealthy device keeps its grants and gets no new ones. */
  readonly isHealthy: boolean;
  readonly grants: readonly Grant[];
}

export interface NodeState {
  /** Unique. */
  readonly name: string;
  /** A node that is not ready keeps its grants and gets no new ones. */
  readonly isReady: boolean;
  /** As for a node that is not ready, but by will. */
  readonly isCordoned: boolean;
  readonly labels?: Labels;
  /** Boot id of its machine. */
  readonly bootId?: string;
  /** Kept for claims that want none with one of these labels beside them: none such is put there. Absent: for none. */
  readonly repelled?: readonly Labels[];
  readonly devices: readonly DeviceState[];
}

export interface Snapshot {
  readonly nodes: readonly NodeState[];
  /** What the pool is asked for as a rule, by which fragments are judged. Absent: what pools are asked for as a rule. */
  readonly workload?: Workload;
}

/** What is left of a device. Neither is ever negative, even when a device came back smaller than it was. */
export interface Free {
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

export function freeOf(device: DeviceState): Free {
  let memoryBytes = device.memoryBytes;
  let computePercent = deviceComputePercent;
  for (const grant of device.grants) {
    memoryBytes -= grant.memoryBytes;
    computePercent -= grant.computePercent;
  }
  return {
    memoryBytes: memoryBytes > 0n ? memoryBytes : 0n,
    computePercent: Math.max(0, computePercent),
  };
}
