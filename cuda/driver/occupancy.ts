// SPDX-License-Identifier: Apache-2.0
/** Occupancy, which depends on the function, its attributes and the given numbers. */
import type { Group } from "../schema.ts";

const value = { kind: "value" } as const;
const out = { kind: "out" } as const;
const functionOrKernel = { kind: "functionOrKernel" } as const;
const cached = {
  invalidatedBy: [
    "cuFuncSetAttribute",
    "cuKernelSetAttribute",
    "cuFuncSetCacheConfig",
    "cuKernelSetCacheConfig",
  ],
} as const;

const ofConfiguration = {
  style: "hand",
  why: "the launch configuration points to attributes, which may hold events",
} as const;

export const occupancy = {
  cuOccupancyMaxActiveBlocksPerMultiprocessor: {
    style: "wait",
    left: "books",
    context: "current",
    cached,
    arguments: { numBlocks: out, func: functionOrKernel, blockSize: value, dynamicSMemSize: value },
  },
  cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: {
    style: "wait",
    left: "books",
    context: "current",
    cached,
    arguments: {
      numBlocks: out,
      func: functionOrKernel,
      blockSize: value,
      dynamicSMemSize: value,
      flags: value,
    },
  },
  cuOccupancyAvailableDynamicSMemPerBlock: {
    style: "wait",
    left: "books",
    context: "current",
    cached,
    arguments: { dynamicSmemSize: out, func: functionOrKernel, numBlocks: value, blockSize: value },
  },
  cuOccupancyMaxPotentialBlockSize: { style: "local" },
  cuOccupancyMaxPotentialBlockSizeWithFlags: { style: "local" },
  cuOccupancyMaxActiveClusters: ofConfiguration,
  cuOccupancyMaxPotentialClusterSize: ofConfiguration,
} as const satisfies Group;
