// SPDX-License-Identifier: Apache-2.0
// npm run complete-lock: gives every optional dependency for another platform its entry in package-lock.json. A registry
// that mirrors only some platforms leaves the others out, and `npm ci` then refuses the whole lock file, although it
// would not install them here anyway.
import { readFile, writeFile } from "node:fs/promises";
import { inRoot } from "./lib/paths.ts";

interface Entry {
  version?: string;
  dev?: boolean;
  optional?: boolean;
  cpu?: string[];
  os?: string[];
  libc?: string[];
  optionalDependencies?: Record<string, string>;
}

const systems = [
  "android",
  "darwin",
  "freebsd",
  "linux",
  "openharmony",
  "win32",
  "netbsd",
  "openbsd",
  "sunos",
  "aix",
];
const processors = ["arm64", "x64", "ia32", "arm", "ppc64", "riscv64", "s390x", "loong64", "mips64el"];

/** The platform that a package name such as `@oxlint/binding-linux-arm-gnueabihf` implies; empty: any. */
function platformOf(name: string): Pick<Entry, "cpu" | "os" | "libc"> {
  const words = name.slice(name.indexOf("/") + 1).split("-");
  const os = systems.filter((system) => words.includes(system));
  const cpu = processors.filter((processor) =>
    words.some((word) => word === processor || word === `${processor}v7`),
  );
  const libc = words.some((word) => word.startsWith("musl")) ? ["musl"] : [];
  return { ...(cpu.length && { cpu }), ...(os.length && { os }), ...(libc.length && { libc }) };
}

export async function main(): Promise<void> {
  const path = inRoot("package-lock.json");
  const lock = JSON.parse(await readFile(path, "utf8")) as { packages: Record<string, Entry> };
  let added = 0;
  for (const entry of Object.values(lock.packages)) {
    for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
      const key = `node_modules/${name}`;
      if (lock.packages[key] !== undefined) continue;
      const dev = entry.dev === true ? { dev: true } : {};
      lock.packages[key] = { version, ...platformOf(name), ...dev, optional: true };
      added += 1;
    }
  }
  const sorted = Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1));
  lock.packages = Object.fromEntries(sorted);
  await writeFile(path, `${JSON.stringify(lock, null, 2)}\n`);
  console.log(`${added} entries added`);
}
