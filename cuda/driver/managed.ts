// SPDX-License-Identifier: Apache-2.0
/** Managed memory. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;

export const managed = {
  cuMemAllocManaged: { style: "hand", why: "memory of the device that the client mirrors" },
  cuStreamAttachMemAsync: local,
  cuMemAdvise: local,
  cuMemAdvise_v2: local,
  cuMemPrefetchAsync: local,
  cuMemPrefetchAsync_v2: local,
  cuMemPrefetchBatchAsync: local,
  cuMemDiscardBatchAsync: local,
  cuMemDiscardAndPrefetchBatchAsync: local,
  cuMemRangeGetAttribute: local,
  cuMemRangeGetAttributes: local,
  cuLibraryGetManaged: {
    style: "hand",
    why: "a managed variable has the address that the worker's driver chose, and is mirrored there",
  },
} as const satisfies Group;
