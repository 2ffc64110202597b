// SPDX-License-Identifier: Apache-2.0
/** The vGPUs of the claim and their properties. */
import { hand, handWithView, member, type NvmlGroup, out, rule, same } from "./schema.ts";

export const device = {
  nvmlDeviceGetCount: handWithView({ count: out("unsigned") }),
  nvmlDeviceGetCount_v2: same("nvmlDeviceGetCount"),
  nvmlDeviceGetHandleByIndex: handWithView({ index: "number", device: out("Handle") }),
  nvmlDeviceGetHandleByIndex_v2: same("nvmlDeviceGetHandleByIndex"),
  nvmlDeviceGetHandleByUUID: handWithView({ uuid: "string", device: out("Handle") }),
  nvmlDeviceGetHandleByUUIDV: handWithView({ uuid: out("Uuid"), device: out("Handle") }),
  nvmlDeviceGetHandleByPciBusId: handWithView({ busId: "string", device: out("Handle") }),
  nvmlDeviceGetHandleByPciBusId_v2: same("nvmlDeviceGetHandleByPciBusId"),
  nvmlDeviceGetIndex: hand({ device: "gpu", index: out("unsigned") }),
  nvmlDeviceGetModuleId: same("nvmlDeviceGetIndex"),
  nvmlDeviceGetName: hand({ device: "gpu", name: "text" }),
  nvmlDeviceGetUUID: hand({ device: "gpu", uuid: "text" }),
  nvmlDeviceGetBrand: hand({ device: "gpu", brand: out("unsigned") }),
  nvmlDeviceGetArchitecture: hand({ device: "gpu", architecture: out("unsigned") }),
  nvmlDeviceGetCudaComputeCapability: hand({ device: "gpu", major: out("int"), minor: out("int") }),
  nvmlDeviceGetMinorNumber: member("minorNumber"),
  nvmlDeviceGetPciInfo: hand({ device: "gpu", pci: out("PciInfoV1") }),
  nvmlDeviceGetPciInfo_v2: hand({ device: "gpu", pci: out("PciInfoV2") }),
  nvmlDeviceGetPciInfo_v3: hand({ device: "gpu", pci: out("PciInfo") }),
  nvmlDeviceGetPciInfoExt: hand({ device: "gpu", pci: out("PciInfoExt") }),
  nvmlDeviceGetBoardId: hand({ device: "gpu", board: out("unsigned") }),
  nvmlDeviceGetMultiGpuBoard: rule(0, "each vGPU is a board of its own"),
  nvmlDeviceOnSameBoard: hand({ device: "gpu", other: "gpu", isSame: out("int") }),
} as const satisfies NvmlGroup;
