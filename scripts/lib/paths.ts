// SPDX-License-Identifier: Apache-2.0
// Paths of the repository.
import { delimiter, join } from "node:path";

/** The repository's root, absolute. */
export const root = join(import.meta.dirname, "..", "..");

/** `inRoot("build", "native")`: a path below the repository's root. */
export function inRoot(...parts: string[]): string {
  return join(root, ...parts);
}

/** CMake presets of native/CMakePresets.json. */
export const presets = ["release", "asan", "tsan"] as const;
/** "fuzz" has only fuzz targets, and needs clang: see scripts/fuzz.ts. */
export type Preset = (typeof presets)[number] | "fuzz";

/** Directory of a preset's binaries. */
export function nativeDir(preset: Preset): string {
  return inRoot("build", "native", preset);
}

/** The environment of the repository's tools: its own Node and its own binaries come first. */
export function toolEnvironment(): NodeJS.ProcessEnv {
  return {
    ...process.env,
    PATH: `${inRoot("node_modules", ".bin")}${delimiter}${process.env["PATH"] ?? ""}`,
  };
}

/** Native files of the archive by folder of build/native/release; without them the archive cannot be built. */
export const nativeFiles: readonly string[] = [
  "worker/millpond-worker",
  "client/libcuda.so.1",
  "client/libmillpond-tls.so",
  "client/libnvidia-ml.so.1",
  "client/libcupti.so.13",
  "client/libcupti.so.12",
  "softgpu/libcuda.so.1",
];
