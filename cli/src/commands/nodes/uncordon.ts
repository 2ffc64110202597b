// SPDX-License-Identifier: Apache-2.0

import { DeviceHealth } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { cordonTarget } from "../../output/cordon-target.ts";

export async function run(values: Values<"uncordon">, [target = ""]: readonly string[]): Promise<number> {
  const connection = openConnection(values);
  const { kind, ...which } = await cordonTarget(connection, target);
  const { node } = await connection.pool.cordonNode({ ...which, cordoned: false });
  process.stdout.write(`${kind}/${target} uncordoned\n`);
  for (const { index, uuid, health, healthReason } of node?.devices ?? []) {
    if ((uuid === which.deviceUuid || kind === "node") && health === DeviceHealth.UNHEALTHY) {
      process.stderr.write(`device/${which.name}/${index} stays unhealthy: ${healthReason}\n`);
    }
  }
  return exitStatus.ok;
}
