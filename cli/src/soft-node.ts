// SPDX-License-Identifier: Apache-2.0

import { dirname, join } from "node:path";
import type { NativeFiles } from "./native-files.ts";

/** What the software GPUs of a node are like. */
export interface SoftDevices {
  readonly count: number;
  readonly memoryBytes: bigint;
}

/**
 * Environment of a part of the pool. What a user set for programs that run on vGPUs must not reach the workers, which
 * load real drivers.
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

/** The same for the agent of a software node: its devices, and UUIDs that no other node has. */
export function softNodeEnvironment(
  base: NodeJS.ProcessEnv,
  devices: SoftDevices,
  node: { readonly name: string; readonly directory: string },
): NodeJS.ProcessEnv {
  return {
    ...base,
    MILLPOND_SOFTGPU_DEVICES: String(devices.count),
    MILLPOND_SOFTGPU_MEMORY: String(devices.memoryBytes),
    MILLPOND_SOFTGPU_SEED: `${node.directory}/${node.name}`,
    MILLPOND_SOFTGPU_STATE: join(node.directory, "softgpu"),
  };
}
