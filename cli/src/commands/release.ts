// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../command-table.ts";
import type { Values } from "../command-values.ts";
import { openConnection } from "../connection.ts";
import { findOne } from "../find.ts";
import { claimKind } from "../kinds.ts";

export async function run(values: Values<"release">, [name = ""]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  const claim = await findOne(claimKind, connection, name);
  await connection.claims.releaseClaim({ name: claim.name });
  process.stdout.write(`claim/${claim.name} released\n`);
  return exitStatus.ok;
}
