// SPDX-License-Identifier: Apache-2.0
/** Usage of the claim and its programs. */
import { hand, list, type NvmlGroup, out, raw, same } from "./schema.ts";

const noProcesses = hand({ device: "gpu", processes: list("ProcessInfo") });

export const use = {
  nvmlDeviceGetMemoryInfo: hand({ device: "gpu", memory: out("Memory") }),
  nvmlDeviceGetMemoryInfo_v2: hand({ device: "gpu", memory: out("MemoryV2") }),
  nvmlDeviceGetUtilizationRates: hand({ device: "gpu", utilization: out("Utilization") }),
  nvmlDeviceGetComputeRunningProcesses: hand({ device: "gpu", processes: list("ProcessInfoV1") }),
  nvmlDeviceGetComputeRunningProcesses_v2: hand({ device: "gpu", processes: list("ProcessInfo") }),
  nvmlDeviceGetComputeRunningProcesses_v3: same("nvmlDeviceGetComputeRunningProcesses_v2"),
  nvmlDeviceGetGraphicsRunningProcesses: hand({ device: "gpu", processes: list("ProcessInfoV1") }),
  nvmlDeviceGetGraphicsRunningProcesses_v2: noProcesses,
  nvmlDeviceGetGraphicsRunningProcesses_v3: same("nvmlDeviceGetGraphicsRunningProcesses_v2"),
  nvmlDeviceGetMPSComputeRunningProcesses: hand({ device: "gpu", processes: list("ProcessInfoV1") }),
  nvmlDeviceGetMPSComputeRunningProcesses_v2: noProcesses,
  nvmlDeviceGetMPSComputeRunningProcesses_v3: same("nvmlDeviceGetMPSComputeRunningProcesses_v2"),
  nvmlDeviceGetRunningProcessDetailList: hand({ device: "gpu", processes: out("ProcessDetailList") }),
  nvmlDeviceGetProcessUtilization: hand({
    device: "gpu",
    samples: raw("ProcessSample*"),
    count: out("unsigned"),
    since: "long",
  }),
  nvmlDeviceGetProcessesUtilizationInfo: hand({ device: "gpu", processes: out("ProcessesUtilization") }),
} as const satisfies NvmlGroup;
