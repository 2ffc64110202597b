// SPDX-License-Identifier: Apache-2.0

import { existsSync, mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";

/**
 * Creates a folder with all missing parents; an existing folder is left unchanged. Replaces `mkdirSync` with `recursive`,
 * which never returns on a file system such as /proc, which reports for each new folder that its parent is missing.
 *
 * @param mode Mode of all created folders.
 * @throws the error of the system
 */
export function makeFolders(path: string, mode: number): void {
  const missing: string[] = [];
  for (let folder = resolve(path); !existsSync(folder); folder = dirname(folder)) missing.push(folder);
  for (const folder of missing.reverse()) {
    try {
      mkdirSync(folder, { mode });
    } catch (error) {
      // Another process has created it in the meantime.
      if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
    }
  }
}
