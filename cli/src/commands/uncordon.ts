// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../command-table.ts";
import type { Values } from "../command-values.ts";
import { openConnection } from "../connection.ts";
import { cordonTarget } from "../cordon-target.ts";

export async function run(values: Values<"uncordon">, [target = ""]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  const { kind, ...which } = await cordonTarget(connection, target);
  await connection.pool.cordonNode({ ...which, cordoned: false });
  process.stdout.write(`${kind}/${target} uncordoned\n`);
  return exitStatus.ok;
}
