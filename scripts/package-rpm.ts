// SPDX-License-Identifier: Apache-2.0
// npm run package:rpm: build/package/millpond-<version>-1.x86_64.rpm, from what `npm run package` has staged. Needs rpmbuild
// (Debian: the package `rpm`).
import { existsSync } from "node:fs";
import { readFile, rm, stat } from "node:fs/promises";
import { join, relative } from "node:path";
import manifest from "../package.json" with { type: "json" };
import { must, ScriptError, script } from "./lib/command.ts";
import { buildRpmPackage } from "./lib/package/rpm-package.ts";
import { inRoot, root } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

const folder = inRoot("build", "package");
const archive = join(folder, `millpond-${manifest.version}-linux-x64`);
const output = join(folder, `millpond-${manifest.version}-1.x86_64.rpm`);

export async function main(): Promise<void> {
  await script(async () => {
    if (!existsSync(join(archive, "millpond")))
      throw new ScriptError(`${relative(root, archive)} is missing: npm run package makes it`);
    const readme = await readFile(join(archive, "README.md"), "utf8");
    const glibc = /glibc (\d+\.\d+)/.exec(readme)?.[1];
    if (glibc === undefined)
      throw new ScriptError("the README of the archive does not say which glibc it needs");
    const stage = join(folder, "rpm");
    const options = {
      archive,
      output,
      glibc,
      stage,
      version: manifest.version,
      work: join(folder, "rpmbuild"),
    };
    await step("RPM package", async () => {
      await buildRpmPackage(options);
    });
    await rm(stage, { recursive: true });
    // Reports missing files, and prints the contents of the package.
    const files = (await must("rpm", ["-qpl", output])).trim().split("\n");
    const { size } = await stat(output);
    console.log(`${relative(root, output)}: ${files.length} files, ${(size / 1e6).toFixed(1)} MB`);
  });
}
