// SPDX-License-Identifier: Apache-2.0

// Files that a command writes for its user.

import { accessSync, constants, existsSync, statSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { millpondError, quote } from "@millpond/api";

/**
 * Checks, before the work is done, that its result can be written.
 *
 * @param option the option that names the file, such as `--plot`
 * @throws MILLPOND_E_INVALID
 */
export function checkOutputFile(path: string, option: string): void {
  const folder = dirname(resolve(path));
  try {
    if (existsSync(path)) {
      if (statSync(path).isDirectory()) throw new Error("it is a folder");
      accessSync(path, constants.W_OK);
    } else {
      accessSync(folder, constants.W_OK);
    }
  } catch (cause) {
    throw unwritable(path, option, cause);
  }
}

/** @throws MILLPOND_E_INVALID */
export function writeOutputFile(path: string, text: string, option: string): void {
  try {
    writeFileSync(path, text);
  } catch (cause) {
    throw unwritable(path, option, cause);
  }
}

function unwritable(path: string, option: string, cause: unknown) {
  const why = cause instanceof Error ? cause.message : String(cause);
  return millpondError("MILLPOND_E_INVALID", `${option}: ${quote(path)} cannot be written: ${why}`, {
    remedy: "Name a file in an existing, writable folder with free disk space.",
    cause,
  });
}
