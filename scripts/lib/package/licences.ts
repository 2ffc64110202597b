// SPDX-License-Identifier: Apache-2.0
// The licences of the npm packages that a bundle contains.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { ScriptError } from "../command.ts";
import { inRoot } from "../paths.ts";

/** The package folder of a bundled file, such as `node_modules/@a/b`; undefined for our own files. */
export function packageOf(file: string): string | undefined {
  return /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0];
}

/**
 * Returns one text with name, version and licence of each package to which one of the files belongs (relative to the root).
 *
 * @param others notices of further components
 */
export async function collectLicences(files: string[], ...others: string[]): Promise<string> {
  const packages = new Set(files.map(packageOf).filter((folder) => folder !== undefined));
  const parts: string[] = [];
  for (const folder of [...packages].toSorted()) {
    const manifest = JSON.parse(await readFile(inRoot(folder, "package.json"), "utf8")) as {
      name: string;
      version: string;
      license?: string;
    };
    const notices = (await readdir(inRoot(folder)))
      .filter((name) => /^(licen[cs]e|notice)/i.test(name))
      .toSorted();
    if (notices.length === 0 && manifest.license === undefined) {
      throw new ScriptError(`${folder} names no licence: it must not be bundled`);
    }
    const texts = await Promise.all(notices.map((name) => readFile(join(inRoot(folder), name), "utf8")));
    parts.push(
      `${manifest.name} ${manifest.version}: ${manifest.license ?? "see below"}\n\n${texts.join("\n").trim()}`.trim(),
    );
  }
  parts.push(...others);
  const line = "-".repeat(80);
  return `This program contains these packages.\n\n${line}\n${parts.join(`\n\n${line}\n`)}\n`;
}
