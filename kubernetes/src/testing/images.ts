// SPDX-License-Identifier: Apache-2.0

// Images for tests: the pause image for sandboxes, and an image with a program, the C library that it needs and nothing
// else.

import { execFileSync } from "node:child_process";
import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ImageEntry, makeImage } from "../../../scripts/lib/package/oci-image.ts";
import { findKubernetes } from "./control-plane.ts";

export const pauseImage = "millpond/pause:test";
export const programImage = "millpond/examples:test";

function busybox(): ImageEntry {
  return { path: "bin/busybox", content: readFileSync(join(findKubernetes() ?? "", "busybox")), mode: 0o755 };
}

/** @returns The path of the archive. */
export function writePauseImage(directory: string): string {
  const path = join(directory, "pause.tar");
  const config = {
    name: pauseImage,
    entrypoint: ["/bin/busybox", "sleep", "2147483647"],
    user: "65532:65532",
  };
  writeFileSync(path, makeImage([busybox()], config));
  return path;
}

/**
 * @param program A dynamically linked program.
 * @returns The path of the archive.
 */
export function writeProgramImage(directory: string, program: string): string {
  const path = join(directory, "program.tar");
  const libraries = execFileSync("ldd", [program], { encoding: "utf8" })
    .split("\n")
    .flatMap((line) => /(\/\S+) \(0x/.exec(line)?.[1] ?? []);
  // Names the files that the client library needs and that every image with glibc, libstdc++ and a CUDA program has.
  const more = ["libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6"].map((name) =>
    execFileSync("cc", [`-print-file-name=${name}`], { encoding: "utf8" }).trim(),
  );
  const entries = new Map<string, ImageEntry>();
  for (const library of [...libraries, ...more]) {
    const name = library.slice(library.lastIndexOf("/") + 1);
    const isLoader = name.startsWith("ld-linux");
    const target = isLoader ? `lib64/${name}` : `lib/x86_64-linux-gnu/${name}`;
    entries.set(target, { path: target, content: readFileSync(realpathSync(library)), mode: 0o755 });
  }
  const files: ImageEntry[] = [
    ...entries.values(),
    busybox(),
    { path: "bin/sh", link: "busybox" },
    { path: "tmp", mode: 0o1777 },
    { path: "usr/bin/example", content: readFileSync(program), mode: 0o755 },
    ...["vectoradd", "deviceinfo", "matmul"].map((name) => ({ path: `usr/bin/${name}`, link: "example" })),
  ];
  writeFileSync(path, makeImage(files, { name: programImage, entrypoint: ["/usr/bin/vectoradd"] }));
  return path;
}
