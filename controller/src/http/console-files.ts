// SPDX-License-Identifier: Apache-2.0

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { gzipSync } from "node:zlib";

/** A file of the web console, as it is served. */
export interface ConsoleFile {
  readonly type: string;
  readonly bytes: Buffer;
  readonly gzipped: Buffer;
  /** Its name changes with its content, so that browsers may keep it. */
  readonly isImmutable: boolean;
}

const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

/**
 * Reads the files that `npm run build` has built from the workspace `console`. They are in build/console, at most three
 * levels above this module, so that both sources and bundles find them.
 *
 * @returns By name; empty where the console was not built.
 */
export function readConsoleFiles(): ReadonlyMap<string, ConsoleFile> {
  const files = new Map<string, ConsoleFile>();
  const directory = findDirectory();
  for (const name of directory === undefined ? [] : readdirSync(directory)) {
    const type = types[extname(name)];
    if (type !== undefined && directory !== undefined) {
      const bytes = readFileSync(join(directory, name));
      files.set(name, { type, bytes, gzipped: gzipSync(bytes), isImmutable: /-\w{8}\./.test(name) });
    }
  }
  return files;
}

function findDirectory(): string | undefined {
  let above = import.meta.dirname;
  for (let level = 0; level < 4; level += 1) {
    const directory = join(above, "build", "console");
    if (existsSync(join(directory, "index.html"))) {
      return directory;
    }
    above = dirname(above);
  }
  return undefined;
}
