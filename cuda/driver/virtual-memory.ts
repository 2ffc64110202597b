// SPDX-License-Identifier: Apache-2.0
/** Virtual memory management: reserved address ranges, and memory mapped into them. */
import type { Group } from "../schema.ts";

const byHand = {
  style: "hand",
  why: "the client keeps reservations, allocations and mappings, and checks the calls against them",
} as const;

export const virtualMemory = {
  cuMemAddressReserve: byHand,
  cuMemAddressFree: byHand,
  cuMemCreate: byHand,
  cuMemRelease: byHand,
  cuMemRetainAllocationHandle: { style: "local" },
  cuMemMap: byHand,
  cuMemUnmap: byHand,
  cuMemSetAccess: byHand,
  cuMemGetAccess: { style: "local" },
  cuMemGetAllocationGranularity: byHand,
  cuMemGetAllocationPropertiesFromHandle: { style: "local" },
  cuMemExportToShareableHandle: byHand,
  cuMemImportFromShareableHandle: byHand,
  cuMemMapArrayAsync: {
    style: "hand",
    why: "a list of unions with handles; memory counts for as long as it is mapped",
  },
  cuMemGetHandleForAddressRange: {
    style: "local",
    how: "as on a device without such files, as its attributes report",
  },
} as const satisfies Group;
