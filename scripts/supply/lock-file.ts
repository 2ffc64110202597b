// SPDX-License-Identifier: Apache-2.0
// Which packages package-lock.json lets npm install, and whether npm can verify them.
import { readFile } from "node:fs/promises";
import { inRoot } from "../lib/paths.ts";
import { ScriptError } from "../lib/command.ts";

/** A package of the lock file. */
export interface LockedPackage {
  readonly version?: string;
  readonly resolved?: string;
  /** `sha512-<base64>`. */
  readonly integrity?: string;
  readonly license?: string;
  readonly link?: boolean;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
}

export type LockedPackages = Readonly<Record<string, LockedPackage>>;

/** The platform on which Millpond can be installed, according to the root package and the packaged Node. */
export const platform = { os: "linux", cpu: "x64", libc: "glibc" } as const;

export async function readLockFile(): Promise<LockedPackages> {
  const text = await readFile(inRoot("package-lock.json"), "utf8");
  return (JSON.parse(text) as { readonly packages: LockedPackages }).packages;
}

function isFor(allowed: readonly string[] | undefined, own: string): boolean {
  return allowed === undefined || allowed.includes(own) || allowed.includes("any");
}

/** Whether npm would install it on Millpond's platform. */
function isInstallable({ os, cpu, libc }: LockedPackage): boolean {
  return isFor(os, platform.os) && isFor(cpu, platform.cpu) && isFor(libc, platform.libc);
}

/** Why npm could install an untested version, by package; empty: it could not. */
export function flawsOf(packages: LockedPackages): string[] {
  const flaws: string[] = [];
  for (const [path, locked] of Object.entries(packages)) {
    if (!path.includes("node_modules/") || locked.link === true || !isInstallable(locked)) continue;
    if (!/^sha512-[A-Za-z0-9+/]{86}==$/.test(locked.integrity ?? "")) {
      flaws.push(`${path} has no SHA-512 of its content`);
    }
    if (locked.resolved !== undefined && !locked.resolved.startsWith("https://registry.npmjs.org/")) {
      flaws.push(`${path} comes from ${locked.resolved}, not from the public registry`);
    }
  }
  return flaws;
}

/** For `npm run check`. */
export async function checkSupply(): Promise<void> {
  const flaws = flawsOf(await readLockFile());
  const manifest = JSON.parse(await readFile(inRoot("package.json"), "utf8")) as Record<string, unknown>;
  for (const [member, own] of Object.entries(platform)) {
    if (JSON.stringify(manifest[member]) !== JSON.stringify([own])) {
      flaws.push(
        `package.json does not say "${member}": ["${own}"], for which alone the lock file has hashes`,
      );
    }
  }
  if (!/^ignore-scripts=true$/m.test(await readFile(inRoot(".npmrc"), "utf8"))) {
    flaws.push(".npmrc does not say ignore-scripts=true");
  }
  if (flaws.length > 0) throw new ScriptError(flaws.join("\n"));
}
