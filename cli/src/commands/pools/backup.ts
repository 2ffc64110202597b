// SPDX-License-Identifier: Apache-2.0

import { join } from "node:path";
import { formatBytes, millpondError } from "@millpond/api";
import { makeFolders } from "@millpond/platform";
import { backUpStopped } from "@millpond/controller";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";

/** `millpond backup`. */
export async function run(values: Values<"backup">): Promise<number> {
  const { state, to } = values;
  if (state === undefined) {
    if (to !== undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        "--to is only for the state of a stopped controller, with --state",
        {
          remedy:
            "A running controller writes its backup into its own state directory; the command prints the path.",
        },
      );
    }
    const { path, bytes, revision } = await openConnection(values).pool.backUp({});
    say(`the controller has written ${path} on its host`, bytes, revision);
    return exitStatus.ok;
  }
  const backup = await backUpStopped(state, to ?? nextPath(state));
  say(backup.path, BigInt(backup.bytes), BigInt(backup.revision));
  return exitStatus.ok;
}

function nextPath(state: string): string {
  const folder = join(state, "backups");
  makeFolders(folder, 0o700);
  return join(folder, `${new Date().toISOString().replace(/[-:.]/g, "")}.backup`);
}

function say(what: string, bytes: bigint, revision: bigint): void {
  process.stdout.write(`${what}: ${formatBytes(bytes)}, revision ${revision}\n`);
}
