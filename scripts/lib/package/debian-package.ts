// SPDX-License-Identifier: Apache-2.0
// A Debian package with the contents of the archive for hosts without Node. The same files make the same bytes.
import { chmod, cp, lutimes, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { constants, gzipSync } from "node:zlib";
import { renderCompletion, renderManPages } from "@millpond/cli";
import { must, ScriptError } from "../command.ts";
import { inRoot } from "../paths.ts";

export interface DebianPackage {
  /** The unpacked archive. */
  readonly archive: string;
  readonly version: string;
  /** The newest glibc version that something in it needs, such as "2.34". */
  readonly glibc: string;
  /** Where the tree of the package is put together; what is there is removed. */
  readonly stage: string;
  /** The file to write. */
  readonly output: string;
}

/** All files have this time, so that the package does not depend on when it was made. */
const epoch = 0;

/** Parts of the archive that measure and compare are no part of an installation. */
const leftOut: ReadonlySet<string> = new Set(["bench", "conformance", "README.md", "millpond-bench"]);

/** Units and configuration files, from packaging/. */
const services = [
  "millpond-controller.service",
  "millpond-agent.service",
  "millpond-backup.service",
  "millpond-backup.timer",
] as const;

/** @returns The path of the package. */
export async function buildDebianPackage(options: DebianPackage): Promise<string> {
  const { archive, version, stage, output } = options;
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
  for (const unit of services) await copy(packaging("systemd", unit), at("lib", "systemd", "system", unit));
  await copy(packaging("systemd", "sysusers.conf"), at("usr", "lib", "sysusers.d", "millpond.conf"));
  await copy(packaging("etc", "controller.yaml"), at("etc", "millpond", "controller.yaml"));
  await writeCompletions(at);
  for (const { file, text } of renderManPages(version))
    await write(at("usr", "share", "man", "man1", `${file}.gz`), zip(text));
  await writeDocuments(at);
  await writeControl(options, at);
  await settle(stage);
  await must("dpkg-deb", ["--root-owner-group", "-Zgzip", "-z9", "--build", stage, output], {
    env: { ...process.env, SOURCE_DATE_EPOCH: String(epoch) },
  });
  return output;
}

type Place = (...path: string[]) => string;

async function writeCompletions(at: Place): Promise<void> {
  const share = (...path: string[]) => at("usr", "share", ...path);
  await write(share("bash-completion", "completions", "millpond"), renderCompletion("bash"));
  await write(share("zsh", "vendor-completions", "_millpond"), renderCompletion("zsh"));
  await write(share("fish", "vendor_completions.d", "millpond.fish"), renderCompletion("fish"));
}

async function writeDocuments(at: Place): Promise<void> {
  const doc = (...path: string[]) => at("usr", "share", "doc", "millpond", ...path);
  await cp(inRoot("docs"), doc("docs"), { recursive: true });
  await cp(inRoot("packaging", "grafana"), doc("grafana"), { recursive: true });
  await write(doc("changelog.gz"), zip(await readFile(inRoot("CHANGELOG.md"), "utf8")));
  const licence = "Licence: Apache-2.0; its text is /usr/share/common-licenses/Apache-2.0 on Debian.";
  const others = "What is bundled has the licences in /usr/lib/millpond/THIRD-PARTY-LICENSES.txt.";
  await write(doc("copyright"), `Millpond\n\n${licence}\n${others}\n`);
}

async function writeControl({ version, glibc, stage, archive }: DebianPackage, at: Place): Promise<void> {
  const missing = (await readdir(archive)).includes("millpond") ? undefined : `${archive}/millpond`;
  if (missing !== undefined) throw new ScriptError(`${missing} is missing: this is no unpacked archive`);
  const size = Number.parseInt(await must("du", ["-sk", "--apparent-size", stage]), 10);
  const fields = [
    "Package: millpond",
    `Version: ${version}`,
    "Architecture: amd64",
    "Maintainer: The Millpond authors <millpond@localhost>",
    `Installed-Size: ${size}`,
    `Depends: libc6 (>= ${glibc})`,
    "Recommends: systemd",
    "Section: admin",
    "Priority: optional",
    "Description: pool of virtual GPUs for unmodified CUDA programs",
    " Makes one pool of the GPUs of many hosts. Programs run on virtual GPUs of it,",
    " on the host of the GPU or on another. Contains the command millpond, the",
    " controller, the agent of a GPU host, their services, and software GPUs.",
  ];
  await write(at("DEBIAN", "control"), `${fields.join("\n")}\n`);
  await write(at("DEBIAN", "conffiles"), "/etc/millpond/controller.yaml\n");
  for (const script of ["postinst", "prerm", "postrm"]) {
    await copy(inRoot("packaging", "debian", script), at("DEBIAN", script));
    await chmod(at("DEBIAN", script), 0o755);
  }
}

/** Sets the same modes and times in every package, regardless of the building user. */
async function settle(stage: string): Promise<void> {
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

async function copy(from: string, to: string): Promise<void> {
  await write(to, await readFile(from));
}

async function write(path: string, content: string | Buffer): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}
