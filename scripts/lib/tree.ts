// SPDX-License-Identifier: Apache-2.0
// Rules about files that no other tool checks.
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { must, ScriptError } from "./command.ts";
import { inRoot, root } from "./paths.ts";

const licenceLine = "SPDX-License-Identifier: Apache-2.0";
const sourceFile = /\.(ts|mjs|c|cpp|h|cu|proto)$/;
const generatedFile = /(^|\/)(gen|golden)\//;

async function trackedFiles(): Promise<string[]> {
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

/** Targets of the relative links of a Markdown text, without their #fragment. */
export function relativeLinks(markdown: string): string[] {
  const prose = markdown.replaceAll(/^```[^]*?^```/gm, "").replaceAll(/`[^`\n]*`/g, "");
  return [...prose.matchAll(/\]\(([^)\s]+)\)/g)]
    .map((match) => (match[1] ?? "").replace(/#.*$/, ""))
    .filter((target) => target !== "" && !/^[a-z]+:/i.test(target));
}

/** Every relative link of a Markdown file leads to a file or folder. */
export async function checkLinks(): Promise<void> {
  const broken: string[] = [];
  for (const name of await trackedFiles()) {
    if (!name.endsWith(".md")) continue;
    for (const target of relativeLinks(await readFile(inRoot(name), "utf8"))) {
      if (!existsSync(join(root, dirname(name), target))) broken.push(`${name}: ${target}`);
    }
  }
  complain("links that lead nowhere", broken);
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
