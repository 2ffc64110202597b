// SPDX-License-Identifier: Apache-2.0

import { countOf, formatBytes, formatGpuMilli } from "@millpond/api";
import type { Connection } from "../connection/connection.ts";

interface Sum {
  readonly gpuMilli: bigint;
  readonly computePercent: bigint;
  readonly memoryBytes: bigint;
}

/** A quota; an absent bound means no limit. */
type Bounds = { readonly [M in keyof Sum]?: bigint | undefined } | undefined;

const nothing: Sum = { gpuMilli: 0n, computePercent: 0n, memoryBytes: 0n };

/**
 * Warns on standard error when the queues are guaranteed more than the pool has. It is not an error, because the number of
 * devices changes.
 *
 * @param changed The guarantee that a command has set; without a bound, nothing is checked.
 */
export async function warnOfGuarantees(
  { queues, pool }: Pick<Connection, "queues" | "pool">,
  changed: Bounds,
): Promise<void> {
  if (Object.values(sumOf(changed)).every((bound) => bound === 0n)) return;
  const [{ queues: all }, { devices }] = await Promise.all([queues.listQueues({}), pool.listDevices({})]);
  // The guarantee of a queue includes those of its children.
  const guaranteed = all
    .filter(({ parent }) => parent === "")
    .reduce((sum, queue) => add(sum, sumOf(queue.guaranteed)), nothing);
  const there = devices.reduce(
    (sum, { memoryBytes }) => add(sum, { gpuMilli: 1000n, computePercent: 100n, memoryBytes }),
    nothing,
  );
  const excesses = [
    ...(guaranteed.gpuMilli > there.gpuMilli
      ? [`${formatGpuMilli(guaranteed.gpuMilli)} of ${countOf(formatGpuMilli(there.gpuMilli), "GPU")}`]
      : []),
    ...(guaranteed.computePercent > there.computePercent
      ? [`${guaranteed.computePercent}% of ${there.computePercent}% compute`]
      : []),
    ...(guaranteed.memoryBytes > there.memoryBytes
      ? [`${formatBytes(guaranteed.memoryBytes)} of ${formatBytes(there.memoryBytes)} memory`]
      : []),
  ];
  if (excesses.length > 0) {
    process.stderr.write(`millpond: the queues are guaranteed ${excesses.join(", ")} of this pool\n`);
  }
}

function sumOf(bounds: Bounds): Sum {
  const { gpuMilli = 0n, computePercent = 0n, memoryBytes = 0n } = bounds ?? {};
  return { gpuMilli, computePercent, memoryBytes };
}

function add(a: Sum, b: Sum): Sum {
  return {
    gpuMilli: a.gpuMilli + b.gpuMilli,
    computePercent: a.computePercent + b.computePercent,
    memoryBytes: a.memoryBytes + b.memoryBytes,
  };
}
