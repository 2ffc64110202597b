// SPDX-License-Identifier: Apache-2.0
/** Launches. */
import type { Group } from "../schema.ts";

const launch = {
  style: "hand",
  why: "parameters are packed by the layout that the client received with the function",
} as const;

/** The launch functions of CUDA 3: a function stores its shape and parameters. */
const legacy = { style: "local" } as const;

export const launches = {
  cuLaunchKernel: launch,
  cuLaunchKernelEx: launch,
  cuLaunchCooperativeKernel: launch,
  cuFuncSetBlockShape: legacy,
  cuFuncSetSharedSize: legacy,
  cuParamSetSize: legacy,
  cuParamSeti: legacy,
  cuParamSetf: legacy,
  cuParamSetv: legacy,
  cuLaunch: legacy,
  cuLaunchGrid: legacy,
  cuLaunchGridAsync: legacy,
  cuLaunchCooperativeKernelMultiDevice: {
    style: "refused",
    why: "launches over several devices were removed in CUDA 13",
  },
} as const satisfies Group;
