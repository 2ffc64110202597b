// SPDX-License-Identifier: Apache-2.0
// The web console as static files: build/console/index.html, and beside it a script, a script for each language that is loaded
// on demand, a style sheet and an icon, whose names change with their content. Controllers find them there.
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { build } from "esbuild";
import { ScriptError } from "../command.ts";
import { inRoot, root } from "../paths.ts";

/** The folder to which the files are written. */
export const consoleDirectory = inRoot("build", "console");

/** @returns The files that were bundled into the script, relative to the root. */
export async function buildConsole(): Promise<string[]> {
  await rm(consoleDirectory, { recursive: true, force: true });
  await mkdir(consoleDirectory, { recursive: true });
  const { metafile } = await build({
    entryPoints: [
      { in: inRoot("console", "src", "main.tsx"), out: "console" },
      { in: inRoot("console", "src", "style.css"), out: "console" },
    ],
    outdir: consoleDirectory,
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    splitting: true,
    absWorkingDir: root,
    bundle: true,
    minify: true,
    platform: "browser",
    target: ["chrome123", "firefox128", "safari17.5"],
    format: "esm",
    metafile: true,
    legalComments: "none",
    logLevel: "silent",
  });
  const made = Object.keys(metafile.outputs)
    .map((path) => basename(path))
    .filter((name) => name.startsWith("console-"));
  const page = await readFile(inRoot("console", "src", "index.html"), "utf8");
  await writeFile(
    join(consoleDirectory, "index.html"),
    page.replaceAll(/\{\{(\.\w+)\}\}/g, (_match, ending: string) => {
      const name = made.find((each) => each.endsWith(ending));
      if (name === undefined) throw new ScriptError(`the console has no file that ends with ${ending}`);
      return name;
    }),
  );
  await copyFile(inRoot("console", "src", "icon.svg"), join(consoleDirectory, "icon.svg"));
  return Object.keys(metafile.inputs);
}
