// SPDX-License-Identifier: Apache-2.0

// The scheduler's view of the pool: an immutable snapshot. A change returns a new one that shares the unchanged parts.

import type { Labels } from "./labels.ts";
import type { Workload } from "./placement/workload.ts";
import type { Topology } from "./topology.ts";

/** The compute of a device, in percent. */
export const deviceComputePercent = 100;

/** What a claim holds of a device, or has lost but may still use. */
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
  /**
   * Memory that the driver takes for a session of a claim, in addition to the claim's memory. Reserved once for each claim;
   * the overhead of further sessions is neither reserved nor charged. Absent: none.
   */
  readonly overheadBytes?: bigint;
  /** Model name, as the driver reports it. */
  readonly model?: string;
  /** `major.minor`. */
  readonly computeCapability?: string;
  /** Where it is attached on its node. Absent: not reported. */
  readonly topology?: Topology;
  /** A cordoned device keeps its grants and gets no new ones. */
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
  /** A cordoned node keeps its grants and gets no new ones. */
  readonly isCordoned: boolean;
  readonly labels?: Labels;
  /** Boot id of its host. */
  readonly bootId?: string;
  /**
   * Reserved for claims with an anti-affinity to these labels: claims with such labels are not placed there. Absent: none.
   */
  readonly repelled?: readonly Labels[];
  readonly devices: readonly DeviceState[];
}

export interface Snapshot {
  readonly nodes: readonly NodeState[];
  /** The workload by which fragmentation is measured. Absent: the usual workload. */
  readonly workload?: Workload;
}

/** Free capacity of a device. Neither part is ever negative, even when a device was reported again with a smaller size. */
export interface Free {
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

/** Returns the part of a device that another claim can have, in addition to the overhead of its own session. */
export function freeOf(device: DeviceState): Free {
  return leftOf(device, { isNew: true });
}

/**
 * Returns by how much a claim on a device could grow. A claim that is alone on a device can have all its memory: the driver
 * then takes its part from the claim's own.
 */
export function growthOf(device: DeviceState): Free {
  return leftOf(device, { isNew: false });
}

function leftOf(device: DeviceState, { isNew }: { readonly isNew: boolean }): Free {
  const { overheadBytes = 0n, grants } = device;
  const sessions = grants.length + (isNew ? 1 : 0);
  let memoryBytes = device.memoryBytes - (sessions > 1 ? BigInt(sessions) * overheadBytes : 0n);
  let computePercent = deviceComputePercent;
  for (const grant of grants) {
    memoryBytes -= grant.memoryBytes;
    computePercent -= grant.computePercent;
  }
  return {
    memoryBytes: memoryBytes > 0n ? memoryBytes : 0n,
    computePercent: Math.max(0, computePercent),
  };
}
