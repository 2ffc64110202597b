// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";

export async function run(values: Values<"remove">, [name = ""]: readonly string[]): Promise<number> {
  const { claims } = await openConnection(values).pool.removeNode({ name, lost: values.lost ?? false });
  for (const claim of claims) process.stderr.write(`claim/${claim} has lost its allocation there\n`);
  process.stdout.write(`node/${name} removed\n`);
  return exitStatus.ok;
}
