// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, readFileSync, statfsSync } from "node:fs";
import { dirname, join } from "node:path";
import { probeDriver } from "@millpond/agent";
import { countOf, formatBytes } from "@millpond/api";
import { commandSpecs } from "../command-table/command-table.ts";
import { findDriver } from "../host/driver-search.ts";
import { errorParts } from "../command-line/errors.ts";
import { unknownVariables } from "../command-line/known-variables.ts";
import { findNativeFiles, type NativeFiles } from "../host/native-files.ts";
import { readOptions } from "../command-line/option-values.ts";
import { cudaVersion } from "../output/columns.ts";
import { failure, type Finding, info, ok, warning } from "./check.ts";

const probeTimeoutMs = 60_000;
const neededNodeMajor = 24;
/** Enough for the rings of a few clients; container runtimes provide 64 MiB by default. */
const wantedSharedMemoryBytes = 64n << 20n;

export function checkNode(): Finding {
  const { node } = process.versions;
  return Number(node.split(".")[0]) >= neededNodeMajor
    ? ok("Node", `${node} (${process.execPath})`)
    : failure("Node", `${node} is too old`, `Install Node ${neededNodeMajor} or later, or run \`npm ci\`.`);
}

/** Checks the native parts; also returns them when they are complete. */
export async function checkNative(
  environment: NodeJS.ProcessEnv,
): Promise<{ readonly findings: readonly Finding[]; readonly native: NativeFiles | undefined }> {
  let native: NativeFiles;
  try {
    native = findNativeFiles(environment);
  } catch (error) {
    const { what, remedy } = errorParts(error);
    return { findings: [failure("native parts", what, remedy)], native: undefined };
  }
  return { findings: [await checkWorker(native), checkClientLibrary(native)], native };
}

async function checkWorker(native: NativeFiles): Promise<Finding> {
  const rebuild = "Build it again with `npm run build`.";
  try {
    accessSync(native.worker, constants.X_OK);
  } catch {
    return failure("worker", `${native.worker} cannot be run`, rebuild);
  }
  try {
    const probe = await probeDriver({
      worker: native.worker,
      driver: native.softgpu,
      timeoutMs: probeTimeoutMs,
    });
    return ok("worker", `runs, and finds ${countOf(probe.devices.length, "software GPU")}`);
  } catch (error) {
    return failure("worker", error instanceof Error ? error.message : String(error), rebuild);
  }
}

/** Loads the client library into a program that does nothing, and resolves all its symbols. */
function checkClientLibrary(native: NativeFiles): Finding {
  const { status, stderr, error } = spawnSync("true", [], {
    encoding: "utf8",
    env: { PATH: process.env["PATH"], LD_PRELOAD: native.client, LD_BIND_NOW: "1", MILLPOND_LOG: "off" },
  });
  const complaint = error?.message ?? stderr.trim();
  if (status === 0 && complaint === "") return ok("client library", `${native.client} loads`);
  return failure(
    "client library",
    complaint === "" ? `a program with ${native.client} ended with status ${status}` : complaint,
    "Build it again with `npm run build`, on a system whose libc is not newer than this one's.",
  );
}

/** Looks for NVIDIA GPUs on this machine; their absence is not a problem. */
export async function checkDriver(native: NativeFiles): Promise<Finding> {
  const { driver, probe, rejected } = await findDriver(native);
  if (driver !== undefined && probe !== undefined) {
    const names = probe.devices.map(({ name }) => name).join(", ");
    return ok(
      "NVIDIA driver",
      `${probe.driver}, CUDA ${cudaVersion(probe.cudaVersion)}: ${names} (${driver})`,
    );
  }
  const module = kernelModuleVersion();
  const [first] = rejected;
  if (first !== undefined) {
    return warning(
      "NVIDIA driver",
      `${first.path} cannot be used: ${first.reason}`,
      module === undefined
        ? "Load the kernel module (`modprobe nvidia`), or start the container with GPU access."
        : `Install the user-space driver of version ${module}, which the kernel module has.`,
    );
  }
  if (module !== undefined) {
    return warning(
      "NVIDIA driver",
      `the kernel module ${module} is loaded, and there is no libcuda.so.1`,
      "Install the user-space driver, or give the container the driver's compute capability.",
    );
  }
  return info("NVIDIA driver", "none on this machine: `millpond up` offers software GPUs");
}

function kernelModuleVersion(): string | undefined {
  const path = "/proc/driver/nvidia/version";
  if (!existsSync(path)) return undefined;
  return /Module.*?\s(\d+\.\d+(?:\.\d+)?)\s/.exec(readFileSync(path, "utf8"))?.[1] ?? "of unknown version";
}

export function checkSharedMemory(): Finding {
  const path = "/dev/shm";
  const fix = "Start the container with more of it, for example `docker run --shm-size=1g`.";
  if (!existsSync(path)) return warning("shared memory", `there is no ${path}`, fix);
  const { bavail, bsize } = statfsSync(path, { bigint: true });
  const free = bavail * bsize;
  return free >= wantedSharedMemoryBytes
    ? ok("shared memory", `${formatBytes(free)} free in ${path}`)
    : warning("shared memory", `only ${formatBytes(free)} free in ${path}`, fix);
}

/** Looks for variables that may not mean what the user expects. */
export function checkEnvironment(
  environment: NodeJS.ProcessEnv,
  native: NativeFiles | undefined,
): readonly Finding[] {
  const findings = [
    ...checkOwnVariables(environment),
    ...checkLibraryPath(environment, native),
    ...checkCudaVariables(environment),
  ];
  return findings.length > 0 ? findings : [ok("environment", "no conflicting variables")];
}

function checkOwnVariables(environment: NodeJS.ProcessEnv): Finding[] {
  const findings: Finding[] = unknownVariables(environment).map((name) =>
    warning("environment", `${name} is set, and nothing reads it`, "Check its spelling, or unset it."),
  );
  for (const [key, spec] of Object.entries(commandSpecs.run.options)) {
    try {
      readOptions({ [key]: spec }, {}, environment);
    } catch (error) {
      findings.push(failure("environment", errorParts(error).what, `Correct ${spec.env}, or unset it.`));
    }
  }
  if (environment["MILLPOND_WORKER"] !== undefined) {
    findings.push(
      warning(
        "environment",
        "MILLPOND_WORKER is set: programs attach to that worker and ask no controller",
        "Unset it, unless you test a worker.",
      ),
    );
  }
  return findings;
}

function checkLibraryPath(environment: NodeJS.ProcessEnv, native: NativeFiles | undefined): Finding[] {
  const findings: Finding[] = [];
  const entries = (environment["LD_LIBRARY_PATH"] ?? "").split(":");
  const ours = native === undefined ? undefined : dirname(native.client);
  if (environment["LD_LIBRARY_PATH"] && entries.includes("")) {
    findings.push(
      warning(
        "LD_LIBRARY_PATH",
        "an empty entry in it means the current directory",
        "Remove the colon at its beginning or end, or the double one in it.",
      ),
    );
  }
  const drivers = entries.filter((entry) => entry !== "" && existsSync(join(entry, "libcuda.so.1")));
  if (ours !== undefined && drivers.includes(ours) && drivers[0] !== ours) {
    findings.push(
      failure(
        "LD_LIBRARY_PATH",
        `${drivers[0]} has a libcuda.so.1 too and comes before ${ours}, so programs find that one`,
        "Put Millpond's directory first, or use `millpond run`, which does.",
      ),
    );
  }
  const preload = environment["LD_PRELOAD"] ?? "";
  if (/libcuda|libnvidia/.test(preload)) {
    findings.push(warning("LD_PRELOAD", `${preload} takes the driver's place in every program`, "Unset it."));
  }
  return findings;
}

function checkCudaVariables(environment: NodeJS.ProcessEnv): Finding[] {
  const visible = environment["CUDA_VISIBLE_DEVICES"];
  if (visible === undefined || /^0(,|$)/.test(visible)) return [];
  return [
    warning(
      "CUDA_VISIBLE_DEVICES",
      `it is ${JSON.stringify(visible)}, and applies to the vGPUs of a program, which count from 0`,
      "Unset it: a program sees only what it was granted anyway.",
    ),
  ];
}
