// SPDX-License-Identifier: Apache-2.0

import { join } from "node:path";
import { millpondError } from "@millpond/api";
import { controllerStateDirectory } from "@millpond/platform";
import { downgradeDatabase, downgradeDirectory, poolKeyFile } from "@millpond/controller";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";

/** `millpond downgrade`. */
export async function run({ state, store, keyFile }: Values<"downgrade">): Promise<number> {
  const directory = state ?? controllerStateDirectory(process.env);
  if (store !== undefined) {
    await downgradeDatabase(store, keyFile ?? join(directory, poolKeyFile));
    process.stdout.write("the database is of the previous release; start its controllers\n");
    return exitStatus.ok;
  }
  if (keyFile !== undefined) {
    throw millpondError("MILLPOND_E_INVALID", "--key-file is for a database", {
      remedy: "Omit it: a state directory contains its key.",
    });
  }
  const backup = await downgradeDirectory(directory, Date.now());
  process.stdout.write(
    `the state is of the previous release; start its controller\nthe state before the downgrade is in ${backup}\n`,
  );
  return exitStatus.ok;
}
