// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";

const pollMs = 500;

export async function run(values: Values<"drain">, [name = ""]: readonly string[]): Promise<number> {
  const { pool } = openConnection(values);
  const { claims } = await pool.drainNode({ name, reason: values.reason ?? "" });
  for (const claim of claims) process.stderr.write(`claim/${claim} has been given notice\n`);
  if (values.wait) {
    while (((await pool.getNode({ name })).node?.devices ?? []).some(({ virtualGpus }) => virtualGpus > 0)) {
      await delay(pollMs);
    }
  }
  process.stdout.write(`node/${name} ${values.wait ? "drained" : "draining"}\n`);
  return exitStatus.ok;
}
