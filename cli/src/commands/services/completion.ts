// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import { renderCompletion } from "../../help/completion.ts";

export async function run(_values: object, [shell]: readonly string[]): Promise<number> {
  process.stdout.write(renderCompletion(shell === "zsh" || shell === "fish" ? shell : "bash"));
  return exitStatus.ok;
}
