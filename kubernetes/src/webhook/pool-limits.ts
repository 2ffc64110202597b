// SPDX-License-Identifier: Apache-2.0

// Checks a request before it becomes a claim: whether a device could hold it, and whether its queue exists and is
// open to its namespace.

import { countOf, formatBytes, formatNeed, millpondError, quote } from "@millpond/api";
import type { PodRequest } from "../request/pod-request.ts";
import { checkQueue, type Tenancy } from "../request/tenancy.ts";

/** The maximum sizes in the pool, and its queues. */
export interface PoolLimits {
  /** Memory of the largest device; 0: there is none. */
  readonly largestDeviceBytes: bigint;
  /** Number of devices of the node that has the most. */
  readonly mostDevices: number;
  /** Queues in which claims can wait: those without children. */
  readonly queues: readonly string[];
}

/**
 * @param limits Undefined: unknown.
 * @throws MILLPOND_E_IMPOSSIBLE, MILLPOND_E_NOT_FOUND, MILLPOND_E_FORBIDDEN
 */
export function checkAgainstPool(
  { slices, options }: PodRequest,
  limits: PoolLimits | undefined,
  tenancy: Tenancy,
): void {
  if (options.queue !== undefined) {
    checkQueue(tenancy, options.queue);
    checkQueueExists(options.queue, limits);
  }
  // A pool without nodes may get some later, so the claim waits with that reason.
  if (limits === undefined || limits.mostDevices === 0) return;
  for (const { slice, containers } of slices) {
    const { gpus, memory } = slice;
    if (memory?.kind === "bytes" && memory.bytes > limits.largestDeviceBytes) {
      throw millpondError(
        "MILLPOND_E_IMPOSSIBLE",
        `the container ${quote(containers[0] ?? "")} asks for ${formatNeed(memory.bytes)} on one device, and the largest device of the pool has ${formatBytes(limits.largestDeviceBytes)}`,
        { remedy: "Request less memory for each vGPU, or more and smaller vGPUs." },
      );
    }
    if (gpus > limits.mostDevices) {
      throw millpondError(
        "MILLPOND_E_IMPOSSIBLE",
        `the container ${quote(containers[0] ?? "")} asks for ${countOf(gpus, "vGPU")} on one node, and no node of the pool has more than ${limits.mostDevices}`,
        { remedy: "Request fewer, or use more pods as a gang." },
      );
    }
  }
}

function checkQueueExists(queue: string, limits: PoolLimits | undefined): void {
  if (limits === undefined || limits.queues.includes(queue)) return;
  throw millpondError("MILLPOND_E_NOT_FOUND", `there is no queue ${quote(queue)} in which claims can wait`, {
    remedy: `Use one of ${limits.queues.slice(0, 20).join(", ")}.`,
  });
}
