// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { makeFolders } from "./make-folders.ts";

test("missing folders are made with their mode, and what the system refuses is an error that comes at once", () => {
  const home = mkdtempSync(join(tmpdir(), "millpond-folders-"));
  try {
    makeFolders(join(home, "a", "b"), 0o700);
    makeFolders(join(home, "a", "b"), 0o755);
    expect(statSync(join(home, "a")).mode & 0o777).toBe(0o700);
    expect(statSync(join(home, "a", "b")).mode & 0o777).toBe(0o700);
    writeFileSync(join(home, "file"), "");
    expect(() => makeFolders(join(home, "file", "b"), 0o700)).toThrow(/ENOTDIR/);
    expect(() => makeFolders("/proc/millpond/state", 0o700)).toThrow(/ENOENT/);
  } finally {
    rmSync(home, { recursive: true });
  }
});
