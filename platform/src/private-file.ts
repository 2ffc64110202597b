// SPDX-License-Identifier: Apache-2.0
import { chmodSync, closeSync, existsSync, openSync } from "node:fs";

/**
 * Makes a database's file before SQLite would, which would make it readable for all: a process that can read it can lock
 * its owner out. Files that exist are closed to others without being opened, because closing them again would give up this
 * process's locks on them. What SQLite puts beside the file has its mode.
 */
export function makePrivateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, "a", 0o600));
  for (const each of [path, `${path}-wal`, `${path}-shm`]) if (existsSync(each)) chmodSync(each, 0o600);
}
