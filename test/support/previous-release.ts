// SPDX-License-Identifier: Apache-2.0
// The release before this one, as far as it is TypeScript: controller, agent and command.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib/paths.ts";

/** Until there is a release, this commit counts as the previous one. */
const commit = "c28aa695017198116d89c42e43a6b115424997ba";

/** Why it is not available; undefined: it is. */
export const missingPrevious: string | undefined =
  spawnSync("git", ["cat-file", "-e", `${commit}^{commit}`], { cwd: root }).status === 0
    ? undefined
    : `the commit ${commit.slice(0, 7)} is not in this clone`;

/** Unpacks it into a folder, which is created. It runs with the packages of this release. */
export function unpackPrevious(folder: string): void {
  mkdirSync(folder);
  const archive = execFileSync("git", ["archive", commit], { cwd: root, maxBuffer: 2 ** 30 });
  execFileSync("tar", ["-x", "-C", folder], { input: archive });
  const modules = join(root, "node_modules");
  mkdirSync(join(folder, "node_modules", "@millpond"), { recursive: true });
  for (const name of readdirSync(modules).filter((each) => each !== "@millpond")) {
    symlinkSync(join(modules, name), join(folder, "node_modules", name));
  }
  for (const name of ["agent", "api", "controller", "scheduler", "simulator"]) {
    symlinkSync(join("..", "..", name), join(folder, "node_modules", "@millpond", name));
  }
}
