// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import { changeContexts, contextFilePath, removeContext, requireContext } from "../../connection/context.ts";

export async function run(_values: object, [asked]: readonly string[]): Promise<number> {
  let name = "";
  const after = changeContexts(contextFilePath(process.env), (file) => {
    name = asked ?? file.currentContext;
    requireContext(file, name);
    return removeContext(file, name);
  });
  const { currentContext } = after;
  const rest = currentContext === "" ? "" : `; the current context is ${currentContext}`;
  process.stdout.write(`logged out of ${name}${rest}\n`);
  return exitStatus.ok;
}
