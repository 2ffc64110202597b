// SPDX-License-Identifier: Apache-2.0

// The value of CUDA_VISIBLE_DEVICES for a program, on a host that has GPUs of its own.

import { readdirSync } from "node:fs";

/** Returns the number of NVIDIA GPUs of this host. */
export function countGpusOfHost(directory = "/proc/driver/nvidia/gpus"): number {
  try {
    return readdirSync(directory).length;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return 0;
    throw error;
  }
}

/**
 * Returns CUDA_VISIBLE_DEVICES for a program: the present value, or all granted vGPUs. PyTorch counts GPUs by NVML, which may
 * report those of the host, and fails where the driver has fewer; with the variable set, it counts the entries instead.
 */
export function visibleDevices(
  current: string | undefined,
  granted: number,
  ofHost: number,
): string | undefined {
  if (current !== undefined || ofHost <= granted) return current;
  return Array.from({ length: granted }, (_, ordinal) => ordinal).join(",");
}
