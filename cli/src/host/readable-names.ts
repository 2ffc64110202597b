// SPDX-License-Identifier: Apache-2.0

import { spawnSync } from "node:child_process";
import { findNativeFiles } from "./native-files.ts";

/** Longer than it takes for all kernels of a large program. */
const patienceMs = 10_000;

/**
 * Names of C++ functions as in the source, by their mangled names. The worker program has the demangler that the compiler of
 * such names belongs to; where it is not installed, or fails, names stay as they are.
 */
export function readableNames(
  names: readonly string[],
  environment: NodeJS.ProcessEnv,
): ReadonlyMap<string, string> {
  const mangled = [...new Set(names)].filter((name) => /^_Z[\w.$]+$/.test(name));
  if (mangled.length === 0) return new Map();
  let worker: string;
  try {
    ({ worker } = findNativeFiles(environment));
  } catch {
    // A host that only reads traces need not have them.
    return new Map();
  }
  const { status, stdout } = spawnSync(worker, ["--demangle"], {
    input: `${mangled.join("\n")}\n`,
    encoding: "utf8",
    timeout: patienceMs,
    maxBuffer: 2 ** 28,
    stdio: ["pipe", "pipe", "ignore"],
  });
  const lines = stdout?.split("\n").slice(0, -1) ?? [];
  if (status !== 0 || lines.length !== mangled.length) return new Map();
  return new Map(mangled.map((name, index) => [name, lines[index] ?? name]));
}
