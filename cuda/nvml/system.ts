// SPDX-License-Identifier: Apache-2.0
/** The library and the claim as a whole. */
import { hand, handWithView, type NvmlGroup, out, raw, same } from "./schema.ts";

export const system = {
  nvmlSystemGetDriverVersion: handWithView({ version: "text" }),
  nvmlSystemGetNVMLVersion: { ...handWithView({ version: "text" }), early: true },
  nvmlSystemGetCudaDriverVersion: handWithView({ version: out("int") }),
  nvmlSystemGetCudaDriverVersion_v2: same("nvmlSystemGetCudaDriverVersion"),
  nvmlSystemGetProcessName: handWithView({ pid: "number", name: "text" }),
  // There are no S-class units, no multi-host boards, and no excluded devices.
  nvmlUnitGetCount: hand({ count: out("unsigned") }),
  nvmlGetExcludedDeviceCount: hand({ count: out("unsigned") }),
  nvmlGetBlacklistDeviceCount: same("nvmlGetExcludedDeviceCount"),
  nvmlSystemGetHicVersion: hand({ count: out("unsigned"), entries: raw("void*") }),
  // No events are delivered: a set can be created, and no event added to it, and waiting for it always times out.
  nvmlEventSetCreate: hand({ set: out("EventSet") }),
  nvmlEventSetWait_v2: hand({ set: raw("EventSet"), event: raw("void*"), timeoutMs: "number" }),
  nvmlEventSetWait: same("nvmlEventSetWait_v2"),
  nvmlEventSetFree: hand({ set: raw("EventSet") }),
  nvmlDeviceRegisterEvents: hand({ device: "gpu", types: "long", set: raw("EventSet") }),
} as const satisfies NvmlGroup;
