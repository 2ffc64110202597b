// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const watchdog = join(import.meta.dirname, "..", "..", "tools", "cleanup-watchdog.ts");

/**
 * Gives this process, and all processes that it starts, a folder of their own for temporary files. When this process ends,
 * for any reason, they are killed and the folder is removed.
 */
export function takeTemporaryFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `${name}-`));
  // A database runs as a user of its own, which must be able to enter the folder.
  chmodSync(folder, 0o711);
  // Detached, because Ctrl-C must not end it before the processes that it cleans up after.
  const child = spawn(process.execPath, [watchdog, folder], {
    stdio: ["pipe", "ignore", "inherit"],
    detached: true,
  });
  child.unref();
  // The pipe stays open until this process ends, and does not keep it alive.
  if (child.stdin instanceof Socket) child.stdin.unref();
  process.env["TMPDIR"] = folder;
  return folder;
}
