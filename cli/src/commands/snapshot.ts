// SPDX-License-Identifier: Apache-2.0

import { writeFile } from "node:fs/promises";
import { exitStatus } from "../command-table.ts";
import type { Values } from "../command-values.ts";
import { openConnection } from "../connection.ts";
import { readPool, toExport } from "../pool-picture.ts";

export async function run(values: Values<"snapshot">): Promise<number> {
  const picture = await readPool(openConnection(values));
  const text = `${JSON.stringify(toExport(picture, new Date()), undefined, 2)}\n`;
  if (values.file === undefined) {
    process.stdout.write(text);
  } else {
    await writeFile(values.file, text);
  }
  return exitStatus.ok;
}
