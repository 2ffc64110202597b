// SPDX-License-Identifier: Apache-2.0
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Abi } from "./abi.ts";

/** The captured API of one CUDA release, `"13.0"` by default. Throws when there is no capture of that release. */
export function loadAbi(release = "13.0"): Abi {
  const path = join(import.meta.dirname, "..", "abi", `cuda-${release}.json`);
  // Written by tools/capture.ts alone, and compared with the real headers by the tests: its shape is not checked again.
  return JSON.parse(readFileSync(path, "utf8")) as Abi;
}
