// SPDX-License-Identifier: Apache-2.0
/** How the vGPUs of a claim reach each other. */
import { hand, handWithView, list, type NvmlGroup, out } from "./schema.ts";

export const topology = {
  nvmlDeviceGetP2PStatus: hand({
    device: "gpu",
    other: "gpu",
    capability: "number",
    status: out("unsigned"),
  }),
  nvmlDeviceGetTopologyCommonAncestor: hand({ device: "gpu", other: "gpu", level: out("unsigned") }),
  nvmlDeviceGetTopologyNearestGpus: handWithView({ device: "gpu", level: "number", devices: list("Handle") }),
} as const satisfies NvmlGroup;
