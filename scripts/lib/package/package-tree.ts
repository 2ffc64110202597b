// SPDX-License-Identifier: Apache-2.0
// The installed files of all packages: the archive for hosts without Node, units, configuration, completions, manual, pages.
import { chmod, cp, lutimes, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { constants, gzipSync } from "node:zlib";
import { renderCompletion, renderManPages } from "@millpond/cli";
import { ScriptError } from "../command.ts";
import { inRoot } from "../paths.ts";

export interface PackageTree {
  /** The unpacked archive. */
  readonly archive: string;
  readonly version: string;
  /** The directory in which the package's tree is assembled; its previous content is removed. */
  readonly stage: string;
  /** Default: Debian's. */
  readonly folders?: SystemFolders;
}

/** Folders whose place differs between distributions, below the root. */
export interface SystemFolders {
  readonly units: string;
  readonly zshCompletions: string;
}

const debianFolders: SystemFolders = {
  units: "lib/systemd/system",
  zshCompletions: "usr/share/zsh/vendor-completions",
};

/** All files get this time, so that the package does not depend on when it was built. */
export const epoch = 0;

/** Parts of the archive for measurements and comparisons are not installed; documents have a separate folder. */
const leftOut: ReadonlySet<string> = new Set([
  "api",
  "bench",
  "conformance",
  "docs",
  "millpond-bench",
  "packaging",
  "README.md",
]);

/** Units and configuration files, from packaging/. */
const services = [
  "millpond-controller.service",
  "millpond-agent.service",
  "millpond-backup.service",
  "millpond-backup.timer",
] as const;

/** The configuration files among the installed ones. */
export const configurationFiles = ["/etc/millpond/controller.yaml"] as const;

/** Assembles the installed files. The same archive results in the same tree. */
export async function stagePackage(options: PackageTree): Promise<void> {
  const { archive, version, stage, folders = debianFolders } = options;
  if (!(await readdir(archive)).includes("millpond"))
    throw new ScriptError(`${archive}/millpond is missing: this is no unpacked archive`);
  await rm(stage, { recursive: true, force: true });
  const at = (...path: string[]) => join(stage, ...path);
  await mkdir(at("usr", "bin"), { recursive: true });
  for (const entry of await readdir(archive)) {
    if (leftOut.has(entry)) continue;
    await cp(join(archive, entry), at("usr", "lib", "millpond", entry), {
      recursive: true,
      verbatimSymlinks: true,
    });
  }
  await symlink("../lib/millpond/millpond", at("usr", "bin", "millpond"));
  const packaging = (...path: string[]) => inRoot("packaging", ...path);
  for (const unit of services) await copy(packaging("systemd", unit), at(folders.units, unit));
  await copy(packaging("systemd", "sysusers.conf"), at("usr", "lib", "sysusers.d", "millpond.conf"));
  await copy(packaging("etc", "controller.yaml"), at("etc", "millpond", "controller.yaml"));
  await writeCompletions(at, folders);
  for (const { file, text } of renderManPages(version))
    await write(at("usr", "share", "man", "man1", `${file}.gz`), zip(text));
  await writeDocuments(at);
  await settle(stage);
}

export type Place = (...path: string[]) => string;

async function writeCompletions(at: Place, { zshCompletions }: SystemFolders): Promise<void> {
  const share = (...path: string[]) => at("usr", "share", ...path);
  await write(share("bash-completion", "completions", "millpond"), renderCompletion("bash"));
  await write(at(zshCompletions, "_millpond"), renderCompletion("zsh"));
  await write(share("fish", "vendor_completions.d", "millpond.fish"), renderCompletion("fish"));
}

async function writeDocuments(at: Place): Promise<void> {
  const doc = (...path: string[]) => at("usr", "share", "doc", "millpond", ...path);
  await cp(inRoot("docs"), doc("docs"), { recursive: true });
  await cp(inRoot("api", "proto"), doc("proto"), { recursive: true });
  for (const folder of ["grafana", "prometheus", "compose", "ansible"])
    await cp(inRoot("packaging", folder), doc(folder), { recursive: true });
  // slurmd runs them in place, so they are not documents.
  await cp(inRoot("packaging", "slurm"), at("usr", "lib", "millpond", "slurm"), { recursive: true });
  await write(doc("changelog.gz"), zip(await readFile(inRoot("CHANGELOG.md"), "utf8")));
  const licence = "Licence: Apache-2.0; its text is /usr/share/common-licenses/Apache-2.0 on Debian.";
  const others = "What is bundled has the licences in /usr/lib/millpond/THIRD-PARTY-LICENSES.txt.";
  await write(doc("copyright"), `Millpond\n\n${licence}\n${others}\n`);
}

/** Sets the same modes and times in every package, regardless of the building user. */
export async function settle(stage: string): Promise<void> {
  for (const entry of await readdir(stage, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isSymbolicLink()) {
      const isProgram = entry.isDirectory() || ((await stat(path)).mode & 0o100) !== 0;
      await chmod(path, isProgram ? 0o755 : 0o644);
    }
    await lutimes(path, epoch, epoch);
  }
  await chmod(stage, 0o755);
  await lutimes(stage, epoch, epoch);
}

function zip(text: string): Buffer {
  return gzipSync(text, { level: constants.Z_BEST_COMPRESSION });
}

export async function copy(from: string, to: string): Promise<void> {
  await write(to, await readFile(from));
}

export async function write(path: string, content: string | Buffer): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}
