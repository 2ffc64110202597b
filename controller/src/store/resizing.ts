// SPDX-License-Identifier: Apache-2.0

// A pending resize of an allocation, as it is stored.

import { millpondError } from "@millpond/api";
import { readMembers, writeMembers } from "../domain/members.ts";
import type { ResizingRecord, VirtualGpuRecord } from "../domain/records.ts";

/** Without the sizes, which are lists. */
const defaults = { memoryBytes: 0n, memoryPercent: 0, computePercent: 0, until: 0 };

/** As they are written: UUID, bytes, percent. */
type WrittenSize = readonly [string, number, number];

export function writeResizing(resizing: ResizingRecord | null): string | null {
  if (resizing === null) {
    return null;
  }
  const { from, to, asked, until } = resizing;
  const members = writeMembers({ ...asked, until }, defaults);
  return JSON.stringify({ members, from: from.map(writeSize), to: to.map(writeSize) });
}

/** @throws MILLPOND_E_STATE_BROKEN */
export function readResizing(text: string | null): ResizingRecord | null {
  if (text === null) {
    return null;
  }
  const found: unknown = JSON.parse(text);
  if (!isWritten(found)) {
    throw millpondError("MILLPOND_E_STATE_BROKEN", `the state has a resize that cannot be read: ${text}`);
  }
  const { until, ...asked } = readMembers(found.members, defaults);
  return { from: found.from.map(readSize), to: found.to.map(readSize), asked, until };
}

interface Written {
  readonly members: string;
  readonly from: readonly WrittenSize[];
  readonly to: readonly WrittenSize[];
}

function isWritten(value: unknown): value is Written {
  if (
    typeof value !== "object" ||
    value === null ||
    !("members" in value && "from" in value && "to" in value)
  ) {
    return false;
  }
  const { members, from, to } = value;
  return typeof members === "string" && [from, to].every((each) => Array.isArray(each) && each.every(isSize));
}

function isSize(value: unknown): value is WrittenSize {
  return (
    Array.isArray(value) &&
    typeof value[0] === "string" &&
    Number.isSafeInteger(value[1]) &&
    Number.isSafeInteger(value[2])
  );
}

function writeSize({ uuid, memoryBytes, computePercent }: VirtualGpuRecord): WrittenSize {
  return [uuid, Number(memoryBytes), computePercent];
}

function readSize([uuid, memoryBytes, computePercent]: WrittenSize): VirtualGpuRecord {
  return { uuid, memoryBytes: BigInt(memoryBytes), computePercent };
}
