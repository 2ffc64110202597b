// SPDX-License-Identifier: Apache-2.0

import { minMemoryBytes } from "@millpond/api";
import type { Constraints, PlacementPolicy } from "./constraints.ts";
import type { Labels } from "./labels.ts";
import { type DeviceState, deviceComputePercent, type Free } from "./snapshot.ts";

/** The request of a claim. All its vGPUs have the same size and are on distinct devices of one node. */
export interface ClaimRequest {
  /** Name of the claim. */
  readonly claim: string;
  /** Number of vGPUs, at least 1. */
  readonly gpus: number;
  /** Memory of each vGPU. 0 and no `memoryPercent`: the whole memory of the device. */
  readonly memoryBytes: bigint;
  /** Memory of each vGPU in percent of its device, 1 to 100; 0: see `memoryBytes`. */
  readonly memoryPercent: number;
  /** Compute of each vGPU, 1 to 100. 0: in proportion to the memory, rounded up. */
  readonly computePercent: number;
  /** Uses compute that others leave idle, and reserves none. Default: no. */
  readonly isBestEffort?: boolean;
  /** Where it may go. Absent: anywhere. */
  readonly constraints?: Constraints;
  /** Placement policy. Default: `least-fragmentation`. */
  readonly policy?: PlacementPolicy;
  /** Its own labels, to which the affinity of other claims refers. */
  readonly labels?: Labels;
}

/** The part of a device that a vGPU gets. */
export type Share = Free;

const shapes = new WeakMap<ClaimRequest, string>();

/** Two requests with the same shape request the same. */
export function shapeOf(request: ClaimRequest): string {
  let shape = shapes.get(request);
  if (shape === undefined) {
    shape = JSON.stringify({ ...request, claim: "" }, (_key, value: unknown) =>
      typeof value === "bigint" ? `${value}` : value,
    );
    shapes.set(request, shape);
  }
  return shape;
}

export function asksForWholeDevices(request: ClaimRequest): boolean {
  return request.memoryBytes === 0n && request.memoryPercent === 0;
}

/**
 * What a vGPU of the request would take of this device; more than the device has if the device is too small. A share in
 * percent includes the overhead of a session, so that two halves fit on a device; memory in bytes does not.
 */
export function shareOf(
  request: ClaimRequest,
  device: Pick<DeviceState, "memoryBytes" | "overheadBytes">,
): Share {
  const part = partOf(request, device);
  const memoryBytes = request.memoryPercent > 0 ? withoutOverhead(part, device) : part;
  if (request.isBestEffort === true) {
    return { memoryBytes, computePercent: 0 };
  }
  if (request.computePercent > 0) {
    return { memoryBytes, computePercent: request.computePercent };
  }
  // In integers, because a floating-point quotient could fall on the wrong side of a percent.
  const proportion = (part * 100n + device.memoryBytes - 1n) / device.memoryBytes;
  return { memoryBytes, computePercent: Math.max(1, Number(proportion)) };
}

function partOf(request: ClaimRequest, device: Pick<DeviceState, "memoryBytes">): bigint {
  if (asksForWholeDevices(request)) {
    return device.memoryBytes;
  }
  if (request.memoryPercent > 0) {
    const part = (device.memoryBytes * BigInt(request.memoryPercent)) / 100n;
    return part > minMemoryBytes ? part : minMemoryBytes;
  }
  return request.memoryBytes;
}

function withoutOverhead(
  part: bigint,
  { memoryBytes, overheadBytes = 0n }: Pick<DeviceState, "memoryBytes" | "overheadBytes">,
): bigint {
  // Beside a whole device there is no other claim.
  if (part >= memoryBytes) return part;
  const left = part - overheadBytes;
  return left > minMemoryBytes ? left : minMemoryBytes;
}

export function fits(share: Share, free: Free): boolean {
  return share.memoryBytes <= free.memoryBytes && share.computePercent <= free.computePercent;
}

/** The capacity of the device without claims. */
export function capacityOf(device: DeviceState): Free {
  return { memoryBytes: device.memoryBytes, computePercent: deviceComputePercent };
}
