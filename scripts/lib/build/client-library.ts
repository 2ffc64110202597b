// SPDX-License-Identifier: Apache-2.0
// Rules for the dependencies and exports of the client libraries. They are injected into other people's containers, so they
// must load with an old libc and must not put any name but the driver's before the program's own.
import { must, ScriptError } from "../command.ts";

/** Shared libraries that a client library may need: libc and its traditional companions. */
const allowedLibraries = ["libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6", "ld-linux-x86-64.so.2"];
/** The newest glibc symbol version that it may refer to: that of RHEL 8 and Debian 10. */
const newestGlibc = "2.28";

/** The facts that readelf reports about one library. */
export interface LibraryFacts {
  needed: string[];
  /** Symbol versions to which it refers, for example `GLIBC_2.17`. */
  versions: string[];
  /** Names of the dynamic symbols it defines. */
  exports: string[];
}

function isNewer(version: string, limit: string): boolean {
  const [a, b] = [version, limit].map((text) => text.split(".").map(Number));
  for (let i = 0; i < Math.max(a?.length ?? 0, b?.length ?? 0); ++i) {
    const difference = (a?.[i] ?? 0) - (b?.[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return false;
}

/** Reads the output of `readelf -dW` and `readelf --dyn-syms -W`. */
export function parseReadelf(dynamic: string, symbols: string): LibraryFacts {
  const needed = [...dynamic.matchAll(/\(NEEDED\)\s+Shared library: \[([^\]]+)\]/g)].map(
    (match) => match[1] ?? "",
  );
  const versions = new Set<string>();
  const exports: string[] = [];
  for (const line of symbols.split("\n")) {
    const [number, , , type, binding, , section, name = ""] = line.trim().split(/\s+/);
    if (!/^\d+:$/.test(number ?? "") || name === "") continue;
    const [base = "", version] = name.split(/@+/);
    if (section === "UND") {
      if (version !== undefined) versions.add(version);
    } else if (binding !== "LOCAL" && !(type === "OBJECT" && section === "ABS")) {
      // An absolute object is the name of a symbol version, not a symbol.
      exports.push(base);
    }
  }
  return { needed, versions: [...versions].toSorted(), exports: exports.toSorted() };
}

/** The faults of a client library that may export only names that begin with one of `prefixes`; empty if there are none. */
export function findFaults(facts: LibraryFacts, ...prefixes: readonly string[]): string[] {
  const faults: string[] = [];
  for (const library of facts.needed) {
    if (!allowedLibraries.includes(library))
      faults.push(`needs ${library}; allowed are ${allowedLibraries.join(", ")}`);
  }
  for (const version of facts.versions) {
    const glibc = /^GLIBC_([\d.]+)$/.exec(version)?.[1];
    if (glibc === undefined) faults.push(`refers to symbol version ${version}, which is not glibc's`);
    else if (isNewer(glibc, newestGlibc))
      faults.push(`refers to ${version}, newer than GLIBC_${newestGlibc}`);
  }
  const foreign = facts.exports.filter((name) => !prefixes.some((prefix) => name.startsWith(prefix)));
  if (foreign.length > 0)
    faults.push(`exports ${foreign.length} names not of ${prefixes.map((prefix) => `${prefix}*`).join(", ")}: ${foreign.slice(0, 8).join(", ")}`);
  if (facts.exports.length === 0) faults.push("exports nothing");
  return faults;
}

/** Throws a ScriptError when the library at `path` breaks a rule. */
export async function checkClientLibrary(path: string, ...prefixes: readonly string[]): Promise<void> {
  const env = { ...process.env, LC_ALL: "C" };
  const facts = parseReadelf(
    await must("readelf", ["-dW", path], { env }),
    await must("readelf", ["--dyn-syms", "-W", path], { env }),
  );
  const faults = findFaults(facts, ...prefixes);
  if (faults.length > 0) throw new ScriptError(`${path}\n  ${faults.join("\n  ")}`);
}
