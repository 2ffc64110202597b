// SPDX-License-Identifier: Apache-2.0
import { randomBytes } from "node:crypto";
import { chmodSync, closeSync, existsSync, fsyncSync, linkSync, openSync, rmSync, writeSync } from "node:fs";

/**
 * Creates a database's file before SQLite does, which would make it world-readable: a process that can read it can lock its
 * owner out. Existing files are made private without opening them, because closing them again would drop this process's locks
 * on them. Files that SQLite puts beside the database get the same mode.
 */
export function makePrivateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, "a", 0o600));
  for (const each of [path, `${path}-wal`, `${path}-shm`]) if (existsSync(each)) chmodSync(each, 0o600);
}

/** Creates a file of mode 0600, completely or not at all; leaves an existing one unchanged. */
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
