// SPDX-License-Identifier: Apache-2.0
// A Debian package with the contents of the archive for hosts without Node. The same files make the same bytes.
import { chmod } from "node:fs/promises";
import { join } from "node:path";
import { must } from "../command.ts";
import { inRoot } from "../paths.ts";
import {
  configurationFiles,
  copy,
  epoch,
  type PackageTree,
  type Place,
  settle,
  stagePackage,
  write,
} from "./package-tree.ts";

export interface DebianPackage extends PackageTree {
  /** The newest glibc version that the package needs, such as "2.34". */
  readonly glibc: string;
  /** The file to write. */
  readonly output: string;
}

/** @returns The path of the package. */
export async function buildDebianPackage(options: DebianPackage): Promise<string> {
  const { stage, output } = options;
  await stagePackage(options);
  await writeControl(options, (...path) => join(stage, ...path));
  await settle(stage);
  await must("dpkg-deb", ["--root-owner-group", "-Zgzip", "-z9", "--build", stage, output], {
    env: { ...process.env, SOURCE_DATE_EPOCH: String(epoch) },
  });
  return output;
}

async function writeControl({ version, glibc, stage }: DebianPackage, at: Place): Promise<void> {
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
  await write(at("DEBIAN", "conffiles"), `${configurationFiles.join("\n")}\n`);
  for (const script of ["postinst", "prerm", "postrm"]) {
    await copy(inRoot("packaging", "debian", script), at("DEBIAN", script));
    await chmod(at("DEBIAN", script), 0o755);
  }
}
