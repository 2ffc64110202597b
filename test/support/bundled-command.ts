// SPDX-License-Identifier: Apache-2.0
// Before the tests: makes `millpond` as packages have it, which starts in half the time that its source takes. The tests start it
// thousands of times.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { entryVariable } from "@millpond/cli/testing/entry";
import { bundlePrograms, commandProgram } from "../../scripts/lib/package/bundle.ts";
import { inRoot } from "../../scripts/lib/paths.ts";

/** Each content has a folder of its own, so that tests that run at the same time, also of other sources, keep theirs. */
const folder = inRoot("build", "test", "commands");

export async function setup(): Promise<void> {
  const fresh = join(folder, `new-${process.pid}`);
  await bundlePrograms([commandProgram], fresh);
  // The command looks for the native parts and the console there.
  mkdirSync(join(fresh, "build"));
  for (const part of ["native", "console"]) symlinkSync(inRoot("build", part), join(fresh, "build", part));
  // The names of all other files depend on their content.
  const hash = createHash("sha256")
    .update(readFileSync(join(fresh, commandProgram.target)))
    .digest("hex");
  const directory = join(folder, hash.slice(0, 16));
  try {
    renameSync(fresh, directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOTEMPTY") throw error;
    rmSync(fresh, { recursive: true });
  }
  process.env[entryVariable] = join(directory, commandProgram.target);
}
