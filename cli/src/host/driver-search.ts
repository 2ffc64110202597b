// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, readSync, realpathSync, statSync } from "node:fs";
import { type Probe, probeDriver } from "@millpond/agent";
import type { NativeFiles } from "./native-files.ts";

const library = "libcuda.so.1";

const usualDirectories = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib64",
  "/usr/lib/wsl/lib",
  "/usr/local/nvidia/lib64",
  "/run/opengl-driver/lib",
] as const;

/** Our own libraries are small, and a driver is not, so a large file need not be read. */
const ownLibraryLimitBytes = 32 * 1024 * 1024;
const probeTimeoutMs = 60_000;

/** The result of the search for an NVIDIA driver. */
export interface DriverSearch {
  /** The driver library that has devices, when one was found. */
  readonly driver: string | undefined;
  readonly probe: Probe | undefined;
  /** Libraries that were found and cannot be used, with the reason. */
  readonly rejected: readonly { readonly path: string; readonly reason: string }[];
}

/** Searches for a driver library that has devices in the places of the dynamic linker and of drivers' installers. */
export async function findDriver(native: NativeFiles): Promise<DriverSearch> {
  const rejected: { path: string; reason: string }[] = [];
  for (const path of driverCandidates()) {
    if (isOwnLibrary(path, native)) continue;
    try {
      const probe = await probeDriver({ worker: native.worker, driver: path, timeoutMs: probeTimeoutMs });
      if (probe.devices.length > 0) return { driver: path, probe, rejected };
      rejected.push({ path, reason: "it finds no device" });
    } catch (error) {
      rejected.push({ path, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  return { driver: undefined, probe: undefined, rejected };
}

/** Whether a library is one of Millpond's, which must never serve as the driver of a worker. */
export function isOwnLibrary(path: string, native: NativeFiles): boolean {
  const real = realpathSync(path);
  if (real === realpathSync(native.client) || real === realpathSync(native.softgpu)) return true;
  // A copy of our library contains the name of the variable that it reads.
  return statSync(real).size < ownLibraryLimitBytes && readFileSync(real).includes("MILLPOND_");
}

function driverCandidates(): string[] {
  const found = [
    ...linkerCache(),
    ...usualDirectories.map((directory) => `${directory}/${library}`).filter((path) => existsSync(path)),
  ].filter(isElf64);
  const byFile = new Map(found.toReversed().map((path) => [realpathSync(path), path]));
  return [...byFile.values()].toReversed();
}

/** Returns the library's paths from the dynamic linker's cache; empty if there is no ldconfig. */
function linkerCache(): string[] {
  for (const program of ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"]) {
    const { status, stdout } = spawnSync(program, ["-p"], { encoding: "utf8" });
    if (status !== 0) continue;
    return stdout
      .split("\n")
      .filter((line) => line.trim().startsWith(`${library} `))
      .map((line) => line.slice(line.indexOf("=>") + 2).trim())
      .filter((path) => existsSync(path));
  }
  return [];
}

function isElf64(path: string): boolean {
  const file = openSync(path, "r");
  try {
    const header = Buffer.alloc(5);
    readSync(file, header, 0, 5, 0);
    return header.toString("latin1") === "\x7fELF\x02";
  } finally {
    closeSync(file);
  }
}
