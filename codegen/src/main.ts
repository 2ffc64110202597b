// SPDX-License-Identifier: Apache-2.0
/**
 * node codegen/src/main.ts            writes the generated files that differ
 * node codegen/src/main.ts --check    writes nothing; exits 1 and names them when some are stale
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { generate } from "./generate.ts";

const root = join(import.meta.dirname, "..", "..");

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

function main(args: readonly string[]): number {
  const unknown = args.find((argument) => argument !== "--check");
  if (unknown !== undefined) {
    console.error(`codegen: unknown argument ${unknown}; only --check is known`);
    return 2;
  }
  const stale = [...generate()].filter(([path, content]) => read(join(root, path)) !== content);
  if (args.includes("--check")) {
    for (const [path] of stale) console.error(`codegen: ${path} is stale; run npm run generate`);
    return stale.length === 0 ? 0 : 1;
  }
  for (const [path, content] of stale) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
    console.log(`codegen: wrote ${path}`);
  }
  return 0;
}

process.exitCode = main(process.argv.slice(2));
