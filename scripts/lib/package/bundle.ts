// SPDX-License-Identifier: Apache-2.0
// The programs in TypeScript as packages have them: each in a file of its own, with modules that are loaded on demand.
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { build, stop } from "esbuild";
import { inRoot, root } from "../paths.ts";

/** A program's source, and the location of its bundle, at the same depth of the tree. */
export interface BundledProgram {
  readonly source: string;
  readonly target: string;
}

export const commandProgram: BundledProgram = {
  source: "cli/bin/millpond.mjs",
  target: "cli/bin/millpond.mjs",
};

/** Folders of data that a source file reads from its own folder, and their location next to the bundle. */
const dataFolders = [{ source: "controller/src/store/migrations", target: "cli/lib/migrations" }];

/** @returns The bundled source files, relative to the root. */
export async function bundlePrograms(
  programs: readonly BundledProgram[],
  directory: string,
): Promise<string[]> {
  const { metafile } = await build({
    entryPoints: programs.map(({ source, target }) => ({
      in: inRoot(source),
      out: target.replace(/\.mjs$/, ""),
    })),
    outdir: directory,
    outExtension: { ".js": ".mjs" },
    // Modules that only some commands need are loaded on demand, from files at the same depth of the tree as the entry
    // points.
    splitting: true,
    chunkNames: "cli/lib/[name]-[hash]",
    absWorkingDir: root,
    bundle: true,
    platform: "node",
    target: "node24",
    format: "esm",
    metafile: true,
    legalComments: "none",
    // Names are kept, so that stack traces are readable. The image still stays below its limit.
    minifyWhitespace: true,
    // CommonJS packages inside an ES module still call require for Node's own modules.
    banner: {
      js: `import { createRequire as __createRequire } from "node:module";\nconst require = __createRequire(import.meta.url);`,
    },
    logLevel: "silent",
  });
  // The process of the library would stay for as long as this one.
  await stop();
  for (const { source, target } of dataFolders)
    await cp(inRoot(source), join(directory, target), { recursive: true });
  return Object.keys(metafile.inputs);
}
