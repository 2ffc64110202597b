// SPDX-License-Identifier: Apache-2.0
/** Names derived from symbols. */
import type { HandleKind } from "@millpond/cuda";

/** The symbol without its flavour: `cuMemcpyHtoD_v2_ptds` → `cuMemcpyHtoD_v2`. */
export const stemOf = (symbol: string): string => symbol.replace(/_pt(ds|sz)$/, "");

/** Name of the wire command that a symbol becomes: `cuEventElapsedTime_v2` → `EventElapsedTimeV2`. */
export const commandName = (stem: string): string => stem.replace(/^cu/, "").replace(/_v(\d)/, "V$1");

const capitalised = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1);

/** `stream` → `HandleKind::kStream`. */
export const handleKindName = (kind: HandleKind): string => `HandleKind::k${capitalised(kind)}`;

/** Every kind of handle with the C type that stands for it. */
export const handleTypes: Readonly<Record<HandleKind, string>> = {
  stream: "CUstream",
  event: "CUevent",
  module: "CUmodule",
  library: "CUlibrary",
  kernel: "CUkernel",
  function: "CUfunction",
  memoryPool: "CUmemoryPool",
  array: "CUarray",
  mipmappedArray: "CUmipmappedArray",
  graph: "CUgraph",
  graphExec: "CUgraphExec",
  linkState: "CUlinkState",
  textureReference: "CUtexref",
  surfaceReference: "CUsurfref",
};

/** `flags` → `hasFlags`: tells whether a nullable argument was there. */
export const presenceField = (parameter: string): string => `has${capitalised(parameter)}`;
