// SPDX-License-Identifier: Apache-2.0

import { signalProcess } from "@millpond/agent";
import { type Claim, errorCodeOf, millpondError, quote } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { jobsDirectory, readJob } from "../../job/job.ts";
import { userStateDirectory } from "@millpond/platform";
import { findOne } from "../../output/find.ts";
import { claimKind } from "../../output/kinds.ts";

/** Generated names, which users abbreviate to a unique prefix. */
const madeUp = /^claim-[0-9a-f]{16}$/;

export async function run(values: Values<"release">, [name = ""]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  try {
    const claim = await findClaim(connection, name);
    await connection.claims.releaseClaim({ name: claim.name });
    process.stdout.write(`claim/${claim.name} released\n`);
  } catch (error) {
    if (errorCodeOf(error) !== "MILLPOND_E_NOT_FOUND" || !cancelJob(name)) throw error;
    process.stdout.write(`job/${name} cancelled\n`);
  }
  return exitStatus.ok;
}

async function findClaim(connection: Connection, name: string): Promise<Claim> {
  const claim = await findOne(claimKind, connection, name);
  if (claim.name === name || madeUp.test(claim.name)) return claim;
  // `train` may have ended a moment ago, and `train-2` may belong to other work.
  throw millpondError("MILLPOND_E_NOT_FOUND", `there is no claim ${quote(name)}`, {
    remedy: `Give the whole name to release ${claim.name}.`,
  });
}

/**
 * Ends a job of this machine without a claim of the same name: an array, or a program that waits for another job.
 *
 * @returns whether there was one
 */
function cancelJob(name: string): boolean {
  const job = readJob(jobsDirectory(userStateDirectory(process.env)), name);
  return job !== undefined && job.endedAt === null && signalProcess(job.runner, "SIGTERM");
}
