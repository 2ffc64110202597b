// SPDX-License-Identifier: Apache-2.0

import type { Snapshot } from "../snapshot.ts";
import { anyModel, wholeMilli } from "./free-capacity.ts";
import { type WeightedShape, type Workload, workloadOf } from "./workload.ts";

/**
 * A typical mix of requests, in percent of the claims: most training jobs request one GPU, half of the GPU time goes to jobs
 * of fewer than eight, and inference and development request shares.
 */
const usual: readonly (readonly [gpus: number, gpuMilli: number, percent: number])[] = [
  [1, 1000, 42],
  [2, 1000, 7],
  [4, 1000, 6],
  [8, 1000, 8],
  [1, 100, 5],
  [1, 200, 5],
  [1, 250, 8],
  [1, 330, 3],
  [1, 500, 12],
  [1, 750, 4],
];

/** The workload that is assumed for a pool without history. */
export const usualWorkload: Workload = workloadOf(
  usual.map(([gpus, milli, weight]) => weighted(gpus, milli, weight)),
);

/** The number of claims as which the typical workload counts, in addition to the observed ones. */
const usualClaims = 50;

/**
 * Estimates the workload from the claims that hold devices; the more there are, the more they outweigh the typical one. To be
 * called now and then, not for each decision: with another workload every node is scored again.
 */
export function learnWorkload(snapshot: Snapshot): Workload {
  const claims = new Map<string, { gpus: number; gpuMilli: number }>();
  for (const node of snapshot.nodes) {
    for (const device of node.devices) {
      for (const { claim, memoryBytes, computePercent } of device.grants) {
        const memory = Number(
          (memoryBytes * BigInt(wholeMilli) + device.memoryBytes - 1n) / device.memoryBytes,
        );
        const gpuMilli = Math.min(wholeMilli, Math.max(memory, computePercent * 10));
        const held = claims.get(claim) ?? { gpus: 0, gpuMilli: 0 };
        claims.set(claim, { gpus: held.gpus + 1, gpuMilli: Math.max(held.gpuMilli, gpuMilli) });
      }
    }
  }
  return workloadOf([
    ...[...claims.values()].map(({ gpus, gpuMilli }) => weighted(gpus, roundUp(gpuMilli), 1)),
    ...usual.map(([gpus, milli, percent]) => weighted(gpus, milli, (percent * usualClaims) / 100)),
  ]);
}

/** Rounds up to hundredths, so that claims of nearly the same size count together. */
function roundUp(milli: number): number {
  return Math.min(wholeMilli, Math.ceil(milli / 10) * 10);
}

function weighted(gpus: number, gpuMilli: number, weight: number): WeightedShape {
  return { shape: { cpuMilli: 0, memoryMiB: 0, gpus, gpuMilli, models: anyModel }, weight };
}
