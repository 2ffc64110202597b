// SPDX-License-Identifier: Apache-2.0
/** Modes of a device, which are the same for every vGPU. */
import { hand, type NvmlGroup, out, rule } from "./schema.ts";

export const modes = {
  nvmlDeviceGetPersistenceMode: rule(1, "enabled: the worker of a session keeps the driver awake"),
  nvmlDeviceGetDisplayActive: rule(0, "disabled: no display is attached to a vGPU"),
  nvmlDeviceGetDisplayMode: rule(0, "disabled: no display is attached to a vGPU"),
  nvmlDeviceGetComputeMode: rule(0, "default: several programs of a claim may use a vGPU"),
  nvmlDeviceGetAccountingMode: rule(0, "disabled: usage is in the controller's account"),
  nvmlDeviceGetAccountingBufferSize: rule(0, "there is none"),
  nvmlDeviceIsMigDeviceHandle: rule(0, "a vGPU is no MIG instance"),
  nvmlDeviceGetMaxMigDeviceCount: rule(0, "a vGPU is not divided by MIG"),
  nvmlDeviceGetVirtualizationMode: rule(
    0,
    "none: a vGPU of Millpond is no vGPU of NVIDIA's hypervisor drivers",
  ),
  nvmlDeviceGetSupportedEventTypes: {
    by: "rule",
    value: 0,
    why: "no events are reported to programs",
    parameters: { device: "gpu", value: out("uint64_t") },
  },
  nvmlGpmQueryDeviceSupport: hand({ device: "gpu", support: out("GpmSupport") }),
} as const satisfies NvmlGroup;
