// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { cordonTarget } from "../../output/cordon-target.ts";

export async function run(values: Values<"cordon">, [target = ""]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  const { kind, ...which } = await cordonTarget(connection, target);
  await connection.pool.cordonNode({ ...which, reason: values.reason ?? "", cordoned: true });
  process.stdout.write(`${kind}/${target} cordoned\n`);
  return exitStatus.ok;
}
