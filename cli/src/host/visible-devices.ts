// SPDX-License-Identifier: Apache-2.0

// Which of its vGPUs a program is told to see, on a host that has GPUs of its own.

import { readdirSync } from "node:fs";

/** How many NVIDIA GPUs this host has itself. */
export function countGpusOfHost(directory = "/proc/driver/nvidia/gpus"): number {
  try {
    return readdirSync(directory).length;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return 0;
    throw error;
  }
}

/**
 * CUDA_VISIBLE_DEVICES for a program: as it is, or all that was granted. PyTorch asks NVML how many GPUs there are, which
 * tells of those of the host, and fails where the driver has fewer; what the variable names it counts instead.
 */
export function visibleDevices(
  current: string | undefined,
  granted: number,
  ofHost: number,
): string | undefined {
  if (current !== undefined || ofHost <= granted) return current;
  return Array.from({ length: granted }, (_, ordinal) => ordinal).join(",");
}
