// SPDX-License-Identifier: Apache-2.0
// How long a hand-written file may be, and how many entries a folder of code may have.

export interface SizeRules {
  readonly maxLines: number;
  readonly maxEntries: number;
  /** Files that are longer, with the number of lines that they must not exceed. */
  readonly longFiles: Readonly<Record<string, number>>;
  /** Folders that have more entries, with the number that they must not exceed. */
  readonly fullFolders: Readonly<Record<string, number>>;
  /** Folders of data. */
  readonly data: readonly string[];
}

interface SizedFile {
  readonly path: string;
  readonly lines: number;
}

const codeFile = /\.(tsx?|mjs|css|c|cpp|h|cu|proto|sh)$/;
const generatedPath = /(^|\/)(gen|golden)\//;

/**
 * @param files all tracked files of the tree.
 * @returns faults, one line each
 */
export function findSizeFaults(files: readonly SizedFile[], rules: SizeRules): string[] {
  const handWritten = files.filter(
    ({ path }) => !generatedPath.test(path) && !rules.data.some((folder) => path.startsWith(`${folder}/`)),
  );
  const code = handWritten.filter(({ path }) => codeFile.test(path));
  const lines = new Map(code.map(({ path, lines: count }) => [path, count]));
  const codeFolders = new Set(code.map(({ path }) => path.slice(0, Math.max(0, path.lastIndexOf("/")))));
  const entries = new Map<string, number>();
  for (const [folder, names] of entriesByFolder(handWritten)) {
    if (folder !== "" && codeFolders.has(folder)) entries.set(folder, names.size);
  }
  return [
    ...faultsOf(lines, rules.maxLines, rules.longFiles, "lines"),
    ...faultsOf(entries, rules.maxEntries, rules.fullFolders, "entries"),
  ];
}

/** The files and folders directly in each folder. */
function entriesByFolder(files: readonly SizedFile[]): ReadonlyMap<string, ReadonlySet<string>> {
  const byFolder = new Map<string, Set<string>>();
  for (const { path } of files) {
    const parts = path.split("/");
    for (const [depth, name] of parts.entries()) {
      const folder = parts.slice(0, depth).join("/");
      const names = byFolder.get(folder) ?? new Set();
      byFolder.set(folder, names.add(name));
    }
  }
  return byFolder;
}

function faultsOf(
  sizes: ReadonlyMap<string, number>,
  limit: number,
  exceptions: Readonly<Record<string, number>>,
  unit: string,
): string[] {
  const faults: string[] = [];
  for (const [path, size] of sizes) {
    const most = Math.max(limit, exceptions[path] ?? 0);
    if (size > most) faults.push(`${path} has ${size} ${unit}, and may have ${most}`);
  }
  for (const path of Object.keys(exceptions)) {
    const size = sizes.get(path) ?? 0;
    if (size <= limit) faults.push(`${path} has ${size} ${unit}: remove it from the exceptions`);
  }
  return faults;
}
