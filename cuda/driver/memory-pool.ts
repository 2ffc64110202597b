// SPDX-License-Identifier: Apache-2.0
/** Stream-ordered memory and the pools that it comes from. */
import type { Group } from "../schema.ts";

const byHand = {
  style: "hand",
  why: "counts against the limit; the client keeps the pools and a map of what is device memory",
} as const;
const notShared = {
  style: "refused",
  why: "the memory of a pool belongs to one session",
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
  cuMemPoolExportToShareableHandle: notShared,
  cuMemPoolImportFromShareableHandle: notShared,
  cuMemPoolExportPointer: notShared,
  cuMemPoolImportPointer: notShared,
} as const satisfies Group;
