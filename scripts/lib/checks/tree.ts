// SPDX-License-Identifier: Apache-2.0
// Rules about files that no other tool checks.
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { must, ScriptError } from "../command.ts";
import { findLargeClasses } from "./class-members.ts";
import { findWrittenCodes } from "./error-codes.ts";
import { findImportFaults, type Workspace } from "./import-rules.ts";
import { findIncludeFaults } from "./include-rules.ts";
import { importRules, includeRules } from "./layers.ts";
import { readLayers } from "./native-layers.ts";
import { findSizeFaults } from "./size-rules.ts";
import { memberRules, sizeRules } from "./sizes.ts";
import { inRoot, root } from "../paths.ts";

const licenceLine = "SPDX-License-Identifier: Apache-2.0";
const sourceFile = /\.(tsx?|mjs|css|c|cpp|h|cu|proto)$/;
const generatedFile = /(^|\/)(gen|golden)\//;

/** Paths relative to the root, without files whose deletion is not committed yet. */
export async function trackedFiles(): Promise<string[]> {
  const names = (await must("git", ["ls-files", "-z"])).split("\0");
  return names.filter((name) => name !== "" && existsSync(inRoot(name)));
}

function complain(what: string, files: string[]): void {
  if (files.length > 0) throw new ScriptError(`${what}:\n  ${files.join("\n  ")}`);
}

/** Every hand-written source file names its licence in its first lines. */
export async function checkLicenceLines(): Promise<void> {
  const bare: string[] = [];
  for (const name of await trackedFiles()) {
    if (!sourceFile.test(name) || generatedFile.test(name)) continue;
    const head = (await readFile(inRoot(name), "utf8")).split("\n", 3).join("\n");
    if (!head.includes(licenceLine)) bare.push(name);
  }
  complain(`files without "${licenceLine}" in their first three lines`, bare);
}

interface PackageJson {
  readonly name: string;
  readonly workspaces?: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

async function readPackage(...path: string[]): Promise<PackageJson> {
  return JSON.parse(await readFile(inRoot(...path, "package.json"), "utf8"));
}

/** Imports respect the layers, form no cycle, and refer to other workspaces by their declared names. */
export async function checkImports(): Promise<void> {
  const workspaces: Workspace[] = [];
  for (const folder of (await readPackage()).workspaces ?? []) {
    const { name, dependencies, devDependencies } = await readPackage(folder);
    // A package may import itself by its name.
    workspaces.push({
      folder,
      name,
      dependencies: [name, ...Object.keys({ ...dependencies, ...devDependencies })],
    });
  }
  const sources = (await trackedFiles()).filter((name) => /\.tsx?$/.test(name) && !generatedFile.test(name));
  const files = await Promise.all(
    sources.map(async (path) => ({ path, text: await readFile(inRoot(path), "utf8") })),
  );
  complain("imports against scripts/lib/checks/layers.ts", findImportFaults(files, workspaces, importRules));
}

/**
 * Includes of native code refer to existing files, respect the layers of the CMake files, and form no unknown cycle; its
 * error codes are those of the table.
 */
export async function checkNativeSources(): Promise<void> {
  const tracked = await trackedFiles();
  const sources = tracked.filter((name) => /^native\/.*\.(h|cpp|c)$/.test(name));
  const cmakeFiles = tracked.filter((name) => /^native\/.*CMakeLists\.txt$/.test(name));
  const layers = readLayers(await Promise.all(cmakeFiles.map((path) => readFile(inRoot(path), "utf8"))));
  const files = await Promise.all(
    sources.map(async (path) => ({
      path: path.slice("native/".length),
      text: await readFile(inRoot(path), "utf8"),
    })),
  );
  complain("includes against the layers of native/", findIncludeFaults(files, { ...includeRules, layers }));
  complain("error codes beside the table", findWrittenCodes(files));
}

/** No hand-written class has too many public members. */
export async function checkClasses(): Promise<void> {
  const sources = (await trackedFiles()).filter(
    (name) => /\.(h|cpp|tsx?)$/.test(name) && !generatedFile.test(name),
  );
  const files = await Promise.all(
    sources.map(async (path) => ({ path, text: await readFile(inRoot(path), "utf8") })),
  );
  complain("classes against scripts/lib/checks/sizes.ts", findLargeClasses(files, memberRules));
}

/** No hand-written file is too long, and no folder of code has too many entries. */
export async function checkSizes(): Promise<void> {
  const files = await Promise.all(
    (await trackedFiles()).map(async (path) => {
      const text = await readFile(inRoot(path), "latin1");
      return { path, lines: text.split("\n").length - 1 };
    }),
  );
  complain("sizes against scripts/lib/checks/sizes.ts", findSizeFaults(files, sizeRules));
}

/** Rows of the table "Where to find it" of a page: the file to which each links, and the name to search for in it. */
export function walkOf(markdown: string): { readonly path: string; readonly name: string }[] {
  const section = /^### Where to find it\n([^]*?)(?=^#|(?![^]))/m.exec(markdown)?.[1] ?? "";
  return [...section.matchAll(/^\|.*\| \[`[^`]+`\]\(([^)]+)\): `([^`]+)` \|$/gm)].map(
    ([, path = "", name = ""]) => ({
      path,
      name,
    }),
  );
}

/** The files that ARCHITECTURE.md names for decisions exist, and contain the names that it gives. */
export async function checkWalk(): Promise<void> {
  const walk = walkOf(await readFile(inRoot("ARCHITECTURE.md"), "utf8"));
  if (walk.length === 0) throw new ScriptError('ARCHITECTURE.md has no table "Where to find it"');
  const wrong: string[] = [];
  for (const { path, name } of walk) {
    const text = existsSync(inRoot(path)) ? await readFile(inRoot(path), "utf8") : "";
    if (!text.includes(name)) wrong.push(`${path}: ${name}`);
  }
  complain("places of ARCHITECTURE.md that there are not", wrong);
}

/** Targets of the relative links of a Markdown text, without their #fragment. */
export function relativeLinks(markdown: string): string[] {
  const prose = markdown.replaceAll(/^```[^]*?^```/gm, "").replaceAll(/`[^`\n]*`/g, "");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map((match) => (match[1] ?? "").replace(/#.*$/, ""))
    .filter((target) => target !== "" && !/^[a-z]+:/i.test(target));
}

/** Every relative link of a Markdown file refers to an existing file or folder. */
export async function checkLinks(): Promise<void> {
  const broken: string[] = [];
  for (const name of await trackedFiles()) {
    if (!name.endsWith(".md")) continue;
    for (const target of relativeLinks(await readFile(inRoot(name), "utf8"))) {
      if (!existsSync(join(root, dirname(name), target))) broken.push(`${name}: ${target}`);
    }
  }
  complain("links that lead nowhere", broken);
  await checkWalk();
  await checkDecisions();
}

/** Faults of decision records: `files` are their texts by file name, `index` is that of the folder. */
export function decisionFaults(files: ReadonlyMap<string, string>, index: string): string[] {
  const linked = new Set(relativeLinks(index));
  const numbers = new Map<string, string>();
  const faults: string[] = [];
  for (const [name, text] of files) {
    const number = name.slice(0, 4);
    const other = numbers.get(number);
    if (other !== undefined) faults.push(`${name}: its number is that of ${other}`);
    numbers.set(number, name);
    if (!text.startsWith(`# ${number} `)) faults.push(`${name}: its title does not begin with its number`);
    if (!/^Status: .+\. Date: \d{4}-\d{2}-\d{2}\./m.test(text)) faults.push(`${name}: no status and date`);
    if (!linked.has(name)) faults.push(`${name}: not in docs/decisions/README.md`);
  }
  return faults;
}

/** Every decision record has a unique number, a status and a date, and is listed in the index. */
async function checkDecisions(): Promise<void> {
  const records = (await trackedFiles()).filter((name) => /^docs\/decisions\/\d{4}-/.test(name));
  const texts = await Promise.all(
    records.map(async (name) => [basename(name), await readFile(inRoot(name), "utf8")] as const),
  );
  const index = await readFile(inRoot("docs", "decisions", "README.md"), "utf8");
  complain("decision records", decisionFaults(new Map(texts), index));
}

/** The checked-in example binary is the one that its README describes. */
export async function checkPrebuilt(): Promise<void> {
  const bytes = await readFile(inRoot("examples", "prebuilt", "millpond-examples"));
  const readme = await readFile(inRoot("examples", "prebuilt", "README.md"), "utf8");
  const hash = createHash("sha256").update(bytes).digest("hex");
  if (!readme.includes(hash)) {
    throw new ScriptError(`examples/prebuilt/millpond-examples has SHA-256 ${hash}, and its README.md another one;
make both anew: node scripts/start.mjs build-examples --prebuilt`);
  }
}
