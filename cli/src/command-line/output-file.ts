// SPDX-License-Identifier: Apache-2.0

// Files that a command writes for its user.

import {
  accessSync,
  constants,
  existsSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
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

/**
 * Replaces a file as a whole, for readers that may come at any moment; leaves it alone if nothing changes.
 *
 * @throws MILLPOND_E_INVALID
 */
export function replaceOutputFile(path: string, text: string, option: string): void {
  try {
    if (existsSync(path) && readFileSync(path, "utf8") === text) return;
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
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
