// SPDX-License-Identifier: Apache-2.0

import type { SessionRecord } from "../run-directory/run-directory.ts";

/** The part of a device that an allocation has. */
export interface AllocatedPart {
  readonly claim: string;
  readonly epoch: number;
  readonly memoryBytes: number;
}

/**
 * Returns how many workers with contexts but without sessions a device has room for, beside its allocations and the
 * context that is reserved for each. An allocation without a session leaves its context to a worker that waits for one.
 * `sessions` may be of allocations that the controller has not reported yet, or no longer reports.
 */
export function roomForWorkers(
  device: { readonly uuid: string; readonly memoryBytes: number; readonly overheadBytes: number },
  allocations: readonly AllocatedPart[],
  sessions: readonly Pick<SessionRecord, "claim" | "epoch" | "devices">[],
): number {
  if (device.overheadBytes === 0) return Number.POSITIVE_INFINITY;
  const keyOf = ({ claim, epoch }: Pick<AllocatedPart, "claim" | "epoch">) => `${epoch} ${claim}`;
  const parts = new Map(allocations.map((part) => [keyOf(part), part.memoryBytes]));
  const served = new Set<string>();
  for (const session of sessions) {
    const part = session.devices.find(({ uuid }) => uuid === device.uuid);
    if (part === undefined) continue;
    served.add(keyOf(session));
    if (!parts.has(keyOf(session))) parts.set(keyOf(session), part.memoryBytes);
  }
  const held = [...parts.values()].reduce((sum, memoryBytes) => sum + memoryBytes + device.overheadBytes, 0);
  const free = Math.floor(Math.max(0, device.memoryBytes - held) / device.overheadBytes);
  return free + [...parts.keys()].filter((key) => !served.has(key)).length;
}
