// SPDX-License-Identifier: Apache-2.0
// The release before this one, as far as it is TypeScript: controller, agent and command.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../../scripts/lib/paths.ts";

/** Until there is a release, this commit counts as one. */
const commit = "c28aa695017198116d89c42e43a6b115424997ba";

/** Why it is not there; undefined: it is. */
export const missingPrevious: string | undefined =
  spawnSync("git", ["cat-file", "-e", `${commit}^{commit}`], { cwd: root }).status === 0
    ? undefined
    : `the commit ${commit.slice(0, 7)} is not in this clone`;

/** Unpacks it, once for all tests of this machine, and returns its folder. It runs with the packages of this release. */
export function previousRelease(): string {
  const folder = join(tmpdir(), `millpond-release-${commit.slice(0, 7)}-${process.getuid?.()}`);
  if (existsSync(folder)) return folder;
  const making = mkdtempSync(`${folder}-`);
  const archive = execFileSync("git", ["archive", commit], { cwd: root, maxBuffer: 2 ** 30 });
  execFileSync("tar", ["-x", "-C", making], { input: archive });
  const modules = join(root, "node_modules");
  mkdirSync(join(making, "node_modules", "@millpond"), { recursive: true });
  for (const name of readdirSync(modules).filter((each) => each !== "@millpond")) {
    symlinkSync(join(modules, name), join(making, "node_modules", name));
  }
  for (const name of ["agent", "api", "controller", "scheduler", "simulator"]) {
    symlinkSync(join("..", "..", name), join(making, "node_modules", "@millpond", name));
  }
  try {
    renameSync(making, folder);
  } catch (error) {
    rmSync(making, { recursive: true });
    // Another test was faster.
    if (!existsSync(folder)) throw error;
  }
  return folder;
}
