// SPDX-License-Identifier: Apache-2.0
/** Start-up, versions, entry points and error texts: answered from the session's snapshot. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;

export const init = {
  cuInit: local,
  cuDriverGetVersion: local,
  cuGetProcAddress: local,
  cuGetProcAddress_v2: local,
  cuGetExportTable: local,
  cuGetErrorName: local,
  cuGetErrorString: local,
} as const satisfies Group;
