// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { findOne } from "../../output/find.ts";
import { claimKind } from "../../output/kinds.ts";

/** Generated names: users refer to them by a unique beginning. */
const madeUp = /^claim-[0-9a-f]{16}$/;

export async function run(values: Values<"release">, [name = ""]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  const claim = await findOne(claimKind, connection, name);
  if (claim.name !== name && !madeUp.test(claim.name)) {
    // `train` may have ended a moment ago, and `train-2` may belong to other work.
    throw millpondError("MILLPOND_E_NOT_FOUND", `there is no claim ${quote(name)}`, {
      remedy: `Give the whole name to release ${claim.name}.`,
    });
  }
  await connection.claims.releaseClaim({ name: claim.name });
  process.stdout.write(`claim/${claim.name} released\n`);
  return exitStatus.ok;
}
