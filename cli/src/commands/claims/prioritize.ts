// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { findOne } from "../../output/find.ts";
import { claimKind } from "../../output/kinds.ts";

export async function run(
  { priority, ...values }: Values<"prioritize">,
  [name = ""]: readonly string[],
): Promise<number> {
  if (priority === undefined) {
    throw millpondError("MILLPOND_E_INVALID", "--priority is not given");
  }
  const connection = openConnection(values);
  const found = await findOne(claimKind, connection, name);
  await connection.claims.prioritizeClaim({ name: found.name, priority });
  process.stdout.write(`claim/${found.name} has the priority ${priority}\n`);
  return exitStatus.ok;
}
