// SPDX-License-Identifier: Apache-2.0
/** Names derived from symbols. */
import type { HandleKind } from "@millpond/cuda";

/** The symbol without its variant suffix: `cuMemcpyHtoD_v2_ptds` → `cuMemcpyHtoD_v2`. */
export const stemOf = (symbol: string): string => symbol.replace(/_pt(ds|sz)$/, "");

/** Name of the wire command of a symbol: `cuEventElapsedTime_v2` → `EventElapsedTimeV2`. */
export const commandName = (stem: string): string => stem.replace(/^cu/, "").replace(/_v(\d)/, "V$1");

const capitalised = (word: string): string => word.charAt(0).toUpperCase() + word.slice(1);

/** `stream` → `HandleKind::kStream`. */
export const handleKindName = (kind: HandleKind): string => `HandleKind::k${capitalised(kind)}`;

/** Every kind of handle with its C type. */
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

/** `flags` → `hasFlags`: the field that records whether a nullable argument was given. */
export const presenceField = (parameter: string): string => `has${capitalised(parameter)}`;
