// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const undertaker = join(import.meta.dirname, "..", "tools", "undertaker.ts");

/**
 * From here on this process, and all that it starts, have a folder of their own for temporary files. When this process ends,
 * whatever ends it, they are killed, and the folder is removed.
 */
export function takeTemporaryFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `${name}-`));
  // A database runs as a user of its own.
  chmodSync(folder, 0o711);
  // Ctrl-C is for those that it has to outlive.
  const child = spawn(process.execPath, [undertaker, folder], {
    stdio: ["pipe", "ignore", "inherit"],
    detached: true,
  });
  child.unref();
  // Its end of the pipe is ours for as long as we live, and does not keep us alive.
  if (child.stdin instanceof Socket) child.stdin.unref();
  process.env["TMPDIR"] = folder;
  return folder;
}
