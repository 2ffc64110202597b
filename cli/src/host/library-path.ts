// SPDX-License-Identifier: Apache-2.0

import { basename, dirname, join } from "node:path";

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
