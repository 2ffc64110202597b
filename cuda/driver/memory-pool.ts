// SPDX-License-Identifier: Apache-2.0
/** Stream-ordered memory and the pools from which it is allocated. */
import type { Group } from "../schema.ts";

const byHand = {
  style: "hand",
  why: "counts against the memory limit; the client keeps the pools and a map of device memory",
} as const;
const betweenSessions = {
  style: "hand",
  why: "handles are the worker's own, valid for the sessions of one claim",
} as const;

export const memoryPools = {
  cuMemAllocAsync: byHand,
  cuMemAllocFromPoolAsync: byHand,
  cuMemFreeAsync: byHand,
  cuMemPoolCreate: byHand,
  cuMemPoolDestroy: byHand,
  cuMemPoolTrimTo: byHand,
  cuMemPoolSetAttribute: byHand,
  cuMemPoolGetAttribute: byHand,
  cuMemPoolSetAccess: byHand,
  cuMemPoolGetAccess: { style: "local" },
  cuDeviceGetDefaultMemPool: byHand,
  cuDeviceGetMemPool: byHand,
  cuDeviceSetMemPool: { style: "local" },
  cuMemGetDefaultMemPool: byHand,
  cuMemGetMemPool: byHand,
  cuMemSetMemPool: { style: "local" },
  cuMemPoolExportToShareableHandle: betweenSessions,
  cuMemPoolImportFromShareableHandle: betweenSessions,
  cuMemPoolExportPointer: betweenSessions,
  cuMemPoolImportPointer: betweenSessions,
} as const satisfies Group;
