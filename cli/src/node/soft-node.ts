// SPDX-License-Identifier: Apache-2.0

import { dirname, join } from "node:path";
import { formatSize, millpondError } from "@millpond/api";
import type { NativeFiles } from "../host/native-files.ts";

/** The software GPUs of a node. */
export interface SoftDevices {
  readonly count: number;
  readonly memoryBytes: bigint;
  /** The checks of programs, and the file for the findings; absent: no checks. */
  readonly checks?: { readonly tools: readonly string[]; readonly findings: string };
}

const maxCount = 32;
const minMemoryBytes = 64n << 20n;
const maxMemoryBytes = 1n << 40n;

/** @throws MILLPOND_E_INVALID naming the option, for devices that a node cannot have */
export function checkSoftDevices(devices: SoftDevices, countOption = "--gpus"): SoftDevices {
  const { count, memoryBytes } = devices;
  if (count > maxCount) {
    throw millpondError("MILLPOND_E_INVALID", `${countOption}: a node has at most ${maxCount}, not ${count}`);
  }
  if (memoryBytes < minMemoryBytes || memoryBytes > maxMemoryBytes) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--device-memory: ${formatSize(memoryBytes)} is not between 64Mi and 1Ti`,
    );
  }
  return devices;
}

/**
 * Returns the environment of a part of the pool. Variables that a user has set for programs on vGPUs must not reach the
 * workers, which load real drivers.
 */
export function serviceEnvironment(environment: NodeJS.ProcessEnv, native: NativeFiles): NodeJS.ProcessEnv {
  const kept = Object.entries(environment).filter(
    ([name]) =>
      !name.startsWith("MILLPOND_") || name.startsWith("MILLPOND_SOFTGPU_") || name === "MILLPOND_LOG",
  );
  const cleaned: NodeJS.ProcessEnv = Object.fromEntries(kept);
  const client = dirname(native.client);
  for (const list of ["LD_LIBRARY_PATH", "LD_PRELOAD"] as const) {
    const entries = (environment[list] ?? "").split(":").filter((entry) => entry !== "");
    const others = entries.filter((entry) => entry !== client && dirname(entry) !== client);
    if (others.length === 0) delete cleaned[list];
    else cleaned[list] = others.join(":");
  }
  return cleaned;
}

/** Returns the environment for the agent of a software node: its devices, and a seed for UUIDs that no other node has. */
export function softNodeEnvironment(
  base: NodeJS.ProcessEnv,
  devices: SoftDevices,
  node: { readonly name: string; readonly directory: string },
): NodeJS.ProcessEnv {
  const { checks } = devices;
  return {
    ...base,
    ...(checks !== undefined && {
      MILLPOND_SOFTGPU_SANITIZE: checks.tools.join(","),
      MILLPOND_SOFTGPU_FINDINGS: checks.findings,
    }),
    MILLPOND_SOFTGPU_DEVICES: String(devices.count),
    MILLPOND_SOFTGPU_MEMORY: String(devices.memoryBytes),
    MILLPOND_SOFTGPU_SEED: `${node.directory}/${node.name}`,
    MILLPOND_SOFTGPU_STATE: join(node.directory, "softgpu"),
  };
}
