// SPDX-License-Identifier: Apache-2.0
// A package for RPM systems, with the files and the scripts of the Debian package.
import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { must } from "../command.ts";
import { inRoot } from "../paths.ts";
import {
  configurationFiles,
  epoch,
  type PackageTree,
  stagePackage,
  type SystemFolders,
  write,
} from "./package-tree.ts";

export interface RpmPackage extends PackageTree {
  /** The newest glibc version that the package needs, such as "2.34". */
  readonly glibc: string;
  /** Working directory of rpmbuild; its previous content is removed. */
  readonly work: string;
  /** The file to write. */
  readonly output: string;
}

/** On RPM systems /lib is not a folder of its own, and zsh knows no folder of vendors. */
export const rpmFolders: SystemFolders = {
  units: "usr/lib/systemd/system",
  zshCompletions: "usr/share/zsh/site-functions",
};

/** Folders that leave with the package. Several packages may own a folder, such as those of completions. */
const ownFolders = [
  "/usr/lib/millpond",
  "/usr/share/doc/millpond",
  "/etc/millpond",
  "/usr/share/bash-completion",
  "/usr/share/fish",
  "/usr/share/zsh",
];

/** @returns The path of the package. */
export async function buildRpmPackage(options: RpmPackage): Promise<string> {
  const { stage, work, output } = options;
  await stagePackage({ ...options, folders: rpmFolders });
  await rm(work, { recursive: true, force: true });
  await mkdir(work, { recursive: true });
  const spec = join(work, "millpond.spec");
  await write(spec, await renderSpec(options));
  const defines = [
    `_topdir ${work}`,
    `staged ${stage}`,
    // Prebuilt files are packaged unchanged: nothing is stripped, compiled or scanned.
    "__os_install_post %{nil}",
    "_build_id_links none",
    "_binary_payload w6.gzdio",
    "use_source_date_epoch_as_buildtime 1",
    "_buildhost millpond",
  ];
  await must("rpmbuild", ["-bb", ...defines.flatMap((define) => ["--define", define]), spec], {
    env: { ...process.env, SOURCE_DATE_EPOCH: String(epoch) },
  });
  await rename(join(work, "RPMS", "x86_64", `millpond-${options.version}-1.x86_64.rpm`), output);
  await rm(work, { recursive: true });
  return output;
}

/** The spec of the staged tree: it lists each of the tree's files, and the folders that leave with the package. */
export async function renderSpec({ version, glibc, stage }: RpmPackage): Promise<string> {
  const script = (name: string): Promise<string> => readFile(inRoot("packaging", "rpm", name), "utf8");
  const body = (text: string): string => text.replace(/^#!.*\n/, "").trim();
  return [
    "Name: millpond",
    `Version: ${version}`,
    "Release: 1",
    "Summary: Pool of virtual GPUs for unmodified CUDA programs",
    "License: Apache-2.0",
    "ExclusiveArch: x86_64",
    "AutoReqProv: no",
    `Requires: glibc >= ${glibc}`,
    "Recommends: systemd",
    "",
    "%description",
    "Makes one pool of the GPUs of many hosts. Programs run on virtual GPUs of it,",
    "on the host of the GPU or on another. Contains the command millpond, the",
    "controller, the agent of a GPU host, their services, and software GPUs.",
    "",
    "%install",
    "cp -a %{staged}/. %{buildroot}/",
    "",
    "%post",
    body(await script("post")),
    "",
    "%preun",
    body(await script("preun")),
    "",
    "%postun",
    body(await script("postun")),
    "",
    "%files",
    "%defattr(-,root,root)",
    ...(await listFiles(stage)),
    "",
  ].join("\n");
}

async function listFiles(stage: string): Promise<string[]> {
  const entries = await readdir(stage, { recursive: true, withFileTypes: true });
  const lines = entries.flatMap((entry) => {
    const path = `${entry.parentPath.slice(stage.length)}/${entry.name}`;
    const isOwn = ownFolders.some((folder) => path === folder || path.startsWith(`${folder}/`));
    if (entry.isDirectory()) return isOwn ? [`%dir "${path}"`] : [];
    const isConfiguration = configurationFiles.some((file) => file === path);
    return [`${isConfiguration ? "%config(noreplace) " : ""}"${path}"`];
  });
  return lines.toSorted();
}
