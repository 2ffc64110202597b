// SPDX-License-Identifier: Apache-2.0
/** The error log. It concerns calls of this process, so the client keeps it. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;

export const logs = {
  cuLogsRegisterCallback: local,
  cuLogsUnregisterCallback: local,
  cuLogsCurrent: local,
  cuLogsDumpToFile: local,
  cuLogsDumpToMemory: local,
} as const satisfies Group;
