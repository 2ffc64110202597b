// SPDX-License-Identifier: Apache-2.0

import { basename, dirname, join } from "node:path";

/**
 * LD_LIBRARY_PATH for a program: the client library's directory, then what the user had. What the packaged launcher put
 * first for the Node that came with it (`node/lib` beside `node/bin`) is not the program's.
 *
 * @param node This Node's own path.
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
