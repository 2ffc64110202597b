// SPDX-License-Identifier: Apache-2.0

import { existsSync, mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";

/**
 * Makes a folder with all those above it that are missing; one that is there is left alone. In place of `mkdirSync` with
 * `recursive`, which never returns where a file system says of each new folder that there is none above it, as /proc does.
 *
 * @param mode Of all that are made.
 * @throws the error of the system
 */
export function makeFolders(path: string, mode: number): void {
  const missing: string[] = [];
  for (let folder = resolve(path); !existsSync(folder); folder = dirname(folder)) missing.push(folder);
  for (const folder of missing.reverse()) {
    try {
      mkdirSync(folder, { mode });
    } catch (error) {
      // Another process has made it meanwhile.
      if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    }
  }
}
