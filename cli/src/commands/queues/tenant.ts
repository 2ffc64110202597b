// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";

export async function run(
  values: Values<"tenant">,
  [action = "", name = ""]: readonly string[],
): Promise<number> {
  const { queues } = openConnection(values);
  if (action === "delete") {
    await queues.deleteTenant({ name });
    process.stdout.write(`tenant/${name} deleted\n`);
    return exitStatus.ok;
  }
  const isNew = action === "create";
  await queues.putTenant({
    tenant: { name, limit: values.limit ?? {} },
    createOnly: isNew,
    changeOnly: !isNew,
  });
  process.stdout.write(`tenant/${name} ${isNew ? "created" : "changed"}\n`);
  return exitStatus.ok;
}
