// SPDX-License-Identifier: Apache-2.0

import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { checkOutputFile, writeOutputFile } from "../../command-line/output-file.ts";
import { readPool, toExport } from "../../output/pool-picture.ts";

export async function run(values: Values<"snapshot">): Promise<number> {
  if (values.file !== undefined) {
    checkOutputFile(values.file, "--file");
  }
  const picture = await readPool(openConnection(values));
  const text = `${JSON.stringify(toExport(picture, new Date()), undefined, 2)}\n`;
  if (values.file === undefined) {
    process.stdout.write(text);
  } else {
    writeOutputFile(values.file, text, "--file");
  }
  return exitStatus.ok;
}
