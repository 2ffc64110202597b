// SPDX-License-Identifier: Apache-2.0

import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** One name for each CUDA release that programs are linked with. */
const profilerLibraries = ["libcupti.so.13", "libcupti.so.12"] as const;

/**
 * Returns LD_LIBRARY_PATH for a program: the client library's directory, then the user's value, without the entry that the
 * packaged launcher put first for its own Node (`node/lib` beside `node/bin`).
 *
 * @param node path of the Node that runs this process
 */
export function programLibraryPath(
  environment: NodeJS.ProcessEnv,
  clientDirectory: string,
  node: string,
): string {
  const prefix = dirname(dirname(node));
  const [first, ...rest] = (environment["LD_LIBRARY_PATH"] ?? "").split(":");
  const isLaunchers = basename(prefix) === "node" && first === join(prefix, "lib");
  const users = (isLaunchers ? rest : [first, ...rest]).join(":");
  // An empty entry would mean the current directory.
  return users === "" ? clientDirectory : `${clientDirectory}:${users}`;
}

/**
 * Returns LD_PRELOAD for a program: the user's value, then the libraries by which profilers in the program see the GPU. They
 * are preloaded because frameworks are linked with a path of their own for NVIDIA's, which comes before LD_LIBRARY_PATH.
 * MILLPOND_PRELOAD=0 leaves them out.
 *
 * @returns undefined: there is nothing to preload
 */
export function programPreload(environment: NodeJS.ProcessEnv, clientDirectory: string): string | undefined {
  const before = environment["LD_PRELOAD"];
  if (environment["MILLPOND_PRELOAD"] === "0") return before;
  const users = (before ?? "").split(/[ :]+/).filter((entry) => entry !== "");
  const own = profilerLibraries
    .map((name) => join(clientDirectory, name))
    .filter((path) => existsSync(path) && !users.includes(path) && !/[ :]/.test(path));
  return own.length === 0 ? before : [...users, ...own].join(":");
}
