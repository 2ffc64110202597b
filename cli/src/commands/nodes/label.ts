// SPDX-License-Identifier: Apache-2.0

import { formatLabels, millpondError } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";

export async function run(values: Values<"label">, [name = ""]: readonly string[]): Promise<number> {
  if (values.set === undefined && values.remove === undefined) {
    throw millpondError("MILLPOND_E_INVALID", "no label is given", { remedy: "Give --set or --remove." });
  }
  const { node } = await openConnection(values).pool.labelNode({
    name,
    set: { ...values.set },
    remove: [...(values.remove ?? [])],
  });
  process.stdout.write(`node/${name} has ${formatLabels(node?.labels ?? {}) || "no labels"}\n`);
  return exitStatus.ok;
}
