// SPDX-License-Identifier: Apache-2.0
/** How the vGPUs of a claim are connected. */
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
  nvmlDeviceGetNvLinkState: hand({ device: "gpu", link: "number", isActive: out("unsigned") }),
  nvmlDeviceGetNvLinkCapability: hand({
    device: "gpu",
    link: "number",
    capability: "number",
    isThere: out("unsigned"),
  }),
  nvmlDeviceGetNvLinkRemotePciInfo: hand({ device: "gpu", link: "number", pci: out("PciInfoV2") }),
  nvmlDeviceGetNvLinkRemotePciInfo_v2: hand({ device: "gpu", link: "number", pci: out("PciInfo") }),
  nvmlDeviceGetNvLinkRemoteDeviceType: hand({ device: "gpu", link: "number", type: out("unsigned") }),
} as const satisfies NvmlGroup;
