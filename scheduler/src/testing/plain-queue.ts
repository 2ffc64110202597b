// SPDX-License-Identifier: Apache-2.0
// A small pool, and default queues and claims, of which tests change single fields.

import type { QueueSpec } from "../queues/queue.ts";
import type { Snapshot } from "../snapshot.ts";
import { type Job, plainJob, type QueueHistory } from "./queue-history.ts";

const GiB = 1n << 30n;

/** Ready nodes, each with the given number of healthy devices of 8 GiB. */
export function pool(...devices: number[]): Snapshot {
  return {
    nodes: devices.map((count, position) => ({
      name: `node-${position}`,
      isReady: true,
      isCordoned: false,
      devices: Array.from({ length: count }, (_, index) => ({
        uuid: `GPU-${index}`,
        index,
        memoryBytes: 8n * GiB,
        isHealthy: true,
        grants: [],
      })),
    })),
  };
}

/** A queue at the root, without quotas. */
export function queue(name: string, change: Partial<QueueSpec> = {}): QueueSpec {
  return { name, parent: "", weight: 1, borrowing: "any", guaranteed: {}, limit: {}, ...change };
}

/** A claim for one device, unless `gpus` says otherwise. */
export function job(claim: string, change: Partial<Job> & { readonly gpus?: number } = {}): Job {
  const { gpus = 1, ...rest } = change;
  return {
    ...plainJob,
    request: { claim, gpus, memoryBytes: 0n, memoryPercent: 0, computePercent: 0 },
    ...rest,
  };
}

/** The names of the claims that are bound. */
export function running(history: QueueHistory): string[] {
  return history.running.map(({ statement }) => statement.claim).sort();
}
