// SPDX-License-Identifier: Apache-2.0
/** Controls for profilers, which observe this process and not the GPU's. */
import type { Group } from "../schema.ts";

export const profiler = {
  cuProfilerInitialize: { style: "refused", why: "removed from the driver's profiler interface" },
  cuProfilerStart: { style: "local" },
  cuProfilerStop: { style: "local" },
} as const satisfies Group;
