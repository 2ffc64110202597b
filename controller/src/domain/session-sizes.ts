// SPDX-License-Identifier: Apache-2.0

// Whether the sessions of an allocation have their intended sizes.

import { type Reason, reason } from "@millpond/api";
import type { SessionFacts } from "./agent-report.ts";
import type { AllocationRecord, VirtualGpuRecord } from "./records.ts";

export type Fit =
  /** None of them may use more. */
  | { readonly kind: "fits" }
  /** A worker has not answered yet. */
  | { readonly kind: "unknown" }
  | { readonly kind: "refused"; readonly reason: Reason };

/** The sizes that the sessions of an allocation may use: during a resize, the smaller of both. */
export function usableSizes({ devices, resizing }: AllocationRecord): readonly VirtualGpuRecord[] {
  return resizing === null ? devices : combineSizes(resizing.from, resizing.to, "lesser");
}

/** Sizes for the same devices, each the smaller or the larger of two. */
export function combineSizes(
  these: readonly VirtualGpuRecord[],
  others: readonly VirtualGpuRecord[],
  which: "lesser" | "greater",
): VirtualGpuRecord[] {
  const isOther = <T extends number | bigint>(own: T, other: T) =>
    which === "lesser" ? other < own : other > own;
  return these.map((size, position) => {
    const other = others[position] ?? size;
    return {
      uuid: size.uuid,
      memoryBytes: isOther(size.memoryBytes, other.memoryBytes) ? other.memoryBytes : size.memoryBytes,
      computePercent: isOther(size.computePercent, other.computePercent)
        ? other.computePercent
        : size.computePercent,
    };
  });
}

/** Whether none of the first sizes exceeds that of the second. */
export function areWithin(these: readonly VirtualGpuRecord[], others: readonly VirtualGpuRecord[]): boolean {
  return these.every(({ memoryBytes, computePercent }, position) => {
    const other = others[position];
    return other !== undefined && memoryBytes <= other.memoryBytes && computePercent <= other.computePercent;
  });
}

/** @param sessions those of the allocation, as reported by its node's agent after it has received the sizes */
export function fitOf(
  sessions: readonly Pick<SessionFacts, "limits" | "sizeRevision" | "sizeRefusal">[],
  allocation: AllocationRecord,
): Fit {
  const usable = usableSizes(allocation);
  const refused = sessions.find(
    ({ sizeRevision, sizeRefusal }) => sizeRefusal !== "" && sizeRevision === allocation.sizeRevision,
  );
  if (refused !== undefined) {
    return { kind: "refused", reason: reason("worker-refused", { text: refused.sizeRefusal }) };
  }
  const fits = sessions.every(({ limits }) => {
    const own = usable.map(({ uuid }) => limits.get(uuid));
    return own.every((limit, position) => limit !== undefined && areWithin([limit], usable.slice(position)));
  });
  return { kind: fits ? "fits" : "unknown" };
}
