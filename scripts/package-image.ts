// SPDX-License-Identifier: Apache-2.0
// npm run package:image: build/package/millpond-<version>.oci.tar, a container image of all components, from the output of
// `npm run package`. No container engine and no registry are needed; the same files make the same image.
import { existsSync } from "node:fs";
import { lstat, readdir, readFile, readlink, realpath, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import manifest from "../package.json" with { type: "json" };
import { must, ScriptError, script } from "./lib/command.ts";
import { type ImageEntry, makeImage } from "./lib/package/oci-image.ts";
import { inRoot, root } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";
import { withLibraries } from "./supply/bill-of-materials.ts";

const stage = inRoot("build", "package", `millpond-${manifest.version}-linux-x64`);
const output = inRoot("build", "package", `millpond-${manifest.version}.oci.tar`);

/** Size limit of the image's uncompressed files, in bytes. */
const sizeLimit = 150_000_000;

const bill = "millpond.cdx.json";

/** The staged files that belong in the image. */
const parts = ["LICENSE", "THIRD-PARTY-LICENSES.txt", "cli", "kubernetes", "node", "build/native/release"];
const isLeftOut = (path: string): boolean => path.startsWith("build/native/release/bench");

/** The C library of the build host: the image contains nothing else from a distribution, not even a shell. */
const systemLibraries = [
  "ld-linux-x86-64.so.2",
  "libc.so.6",
  "libm.so.6",
  "libdl.so.2",
  "libpthread.so.0",
  "librt.so.1",
  "libresolv.so.2",
  "libnss_dns.so.2",
  "libnss_files.so.2",
];

async function stagedFiles(): Promise<ImageEntry[]> {
  const entries: ImageEntry[] = [];
  const add = async (path: string): Promise<void> => {
    const from = join(stage, path);
    if (!existsSync(from) || isLeftOut(path)) return;
    const info = await lstat(from);
    const target = `opt/millpond/${path}`;
    if (info.isSymbolicLink()) entries.push({ path: target, link: await readlink(from) });
    else if (info.isDirectory()) {
      for (const name of await readdir(from)) await add(join(path, name));
    } else
      entries.push({ path: target, content: await readFile(from), mode: info.mode & 0o111 ? 0o755 : 0o644 });
  };
  for (const part of parts) await add(part);
  return entries;
}

/** The image contains all of the archive, and the C library. */
async function writeBill(): Promise<string> {
  const [, distribution = ""] = /^ID=([a-z]+)$/m.exec(await readFile("/etc/os-release", "utf8")) ?? [];
  const version = (await must("dpkg-query", ["-W", "-f", "${Version}", "libc6"])).trim();
  const library = { name: "libc6", version, distribution, use: "a copy, of the host that built the image" };
  return withLibraries(await readFile(join(stage, bill), "utf8"), [library]);
}

async function systemFiles(): Promise<ImageEntry[]> {
  const entries: ImageEntry[] = [
    { path: "tmp", mode: 0o1777 },
    { path: "etc/nsswitch.conf", content: Buffer.from("hosts: files dns\n") },
    {
      path: "etc/passwd",
      content: Buffer.from("root:x:0:0::/:/none\nmillpond:x:65532:65532::/tmp:/none\n"),
    },
    { path: "etc/group", content: Buffer.from("root:x:0:\nmillpond:x:65532:\n") },
  ];
  for (const name of systemLibraries) {
    const path = (await must("cc", [`-print-file-name=${name}`])).trim();
    if (!path.startsWith("/")) throw new ScriptError(`cc does not know where ${name} is`);
    const directory = name.startsWith("ld-") ? "lib64" : "lib/x86_64-linux-gnu";
    entries.push({
      path: `${directory}/${name}`,
      content: await readFile(await realpath(path)),
      mode: 0o755,
    });
  }
  // Node finds its C++ library by the default path of the dynamic linker.
  for (const name of await readdir(join(stage, "node", "lib"))) {
    entries.push({ path: `lib/x86_64-linux-gnu/${name}`, link: `/opt/millpond/node/lib/${name}` });
  }
  return entries;
}

export async function main(): Promise<void> {
  await script(async () => {
    if (!existsSync(join(stage, "kubernetes"))) {
      throw new ScriptError(`${relative(root, stage)} is missing: run npm run package first`);
    }
    let size = 0;
    await step("image", async () => {
      const text = await writeBill();
      const entries = [
        ...(await stagedFiles()),
        ...(await systemFiles()),
        { path: `opt/millpond/${bill}`, content: Buffer.from(text) },
      ];
      size = entries.reduce((sum, { content }) => sum + (content?.length ?? 0), 0);
      if (size > sizeLimit) throw new ScriptError(`the image has ${size} bytes, more than ${sizeLimit}`);
      const node = "/opt/millpond/node/bin/node";
      const config = {
        name: `millpond/millpond:${manifest.version}`,
        entrypoint: [node, "/opt/millpond/cli/bin/millpond.mjs"],
        environment: ["HOME=/tmp"],
        user: "65532:65532",
      };
      await writeFile(output, makeImage(entries, config));
      await writeFile(output.replace(/\.tar$/, ".cdx.json"), text);
    });
    const { size: packed } = await lstat(output);
    console.log(
      `${relative(root, output)}: ${(packed / 1e6).toFixed(1)} MB, unpacked ${(size / 1e6).toFixed(1)} MB`,
    );
  });
}
