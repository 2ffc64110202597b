// SPDX-License-Identifier: Apache-2.0
import { randomBytes } from "node:crypto";
import { chmodSync, closeSync, existsSync, fsyncSync, linkSync, openSync, rmSync, writeSync } from "node:fs";

/**
 * Makes a database's file before SQLite would, which would make it readable for all: a process that can read it can lock
 * its owner out. Files that exist are closed to others without being opened, because closing them again would give up this
 * process's locks on them. What SQLite puts beside the file has its mode.
 */
export function makePrivateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, "a", 0o600));
  for (const each of [path, `${path}-wal`, `${path}-shm`]) if (existsSync(each)) chmodSync(each, 0o600);
}

/** Creates a file of mode 0600, complete or not at all; leaves one that exists. */
export function makeFileOnce(path: string, content: string): void {
  const draft = `${path}.${randomBytes(6).toString("hex")}`;
  const file = openSync(draft, "wx", 0o600);
  try {
    writeSync(file, content);
    fsyncSync(file);
    linkSync(draft, path);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) {
      throw error;
    }
  } finally {
    closeSync(file);
    rmSync(draft, { force: true });
  }
}
