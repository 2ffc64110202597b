// SPDX-License-Identifier: Apache-2.0

import { type Claim, ClaimState, countOf, formatBytes, millpondError } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { findOne } from "../../output/find.ts";
import { claimKind } from "../../output/kinds.ts";

export async function run(values: Values<"resize">, [name = ""]: readonly string[]): Promise<number> {
  const { gpus = 0, memory, compute = 0, wait } = values;
  if (gpus === 0 && memory === undefined && compute === 0) {
    throw millpondError("MILLPOND_E_INVALID", "none of --gpus, --memory and --compute is given");
  }
  const connection = openConnection(values);
  const found = await findOne(claimKind, connection, name);
  const { claim } = await connection.claims.resizeClaim({
    name: found.name,
    gpus,
    memoryBytes: memory?.kind === "bytes" ? memory.bytes : 0n,
    memoryPercent: memory?.kind === "percent" ? memory.percent : 0,
    computePercent: compute,
    wait,
  });
  process.stdout.write(`claim/${found.name} ${claim === undefined ? "resized" : describe(claim)}\n`);
  return exitStatus.ok;
}

function describe({ allocation, state, reason }: Claim): string {
  if (allocation === undefined) {
    return state === ClaimState.PENDING ? `waits: ${reason}` : "resized, for when it is woken";
  }
  const { length } = allocation.devices;
  const [first] = allocation.devices;
  const size =
    first === undefined
      ? ""
      : `, ${formatBytes(first.memoryBytes)} and ${first.computePercent}% compute each`;
  return `has ${countOf(length, "vGPU")}${size}`;
}
