// SPDX-License-Identifier: Apache-2.0

import { countOf, millpondError } from "@millpond/api";
import { controllerStateDirectory } from "@millpond/platform";
import { restoreBackup, resumeDatabase } from "@millpond/controller";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";

/** `millpond restore`. */
export async function run(
  { state, store, keyFile, newKeys: withNewKeys }: Values<"restore">,
  [backup]: readonly string[],
): Promise<number> {
  if (store !== undefined) {
    if (backup !== undefined || state !== undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        "--store is for a database restored with its own tools; a backup holds the state of a directory",
        { remedy: "Give --store alone, or a backup and --state." },
      );
    }
    say(await resumeDatabase(store, { now: Date.now(), withNewKeys }));
    return exitStatus.ok;
  }
  if (backup === undefined) {
    throw millpondError("MILLPOND_E_INVALID", "the backup to restore is missing", {
      remedy: "Name the file that `millpond backup` has written, or give --store.",
    });
  }
  const directory = state ?? controllerStateDirectory(process.env);
  const restored = restoreBackup({ from: backup, to: directory, now: Date.now(), keyFile, withNewKeys });
  say(restored);
  if (restored.replaced !== undefined) {
    process.stdout.write(`the previous state is in ${restored.replaced}\n`);
  }
  return exitStatus.ok;
}

interface Figures {
  readonly claims: number;
  readonly nodes: number;
}

function say({ claims, nodes }: Figures): void {
  process.stdout.write(
    `restored ${countOf(claims, "claim")} and ${countOf(nodes, "node")}; start the controller, which grants nothing new for 15 s\n`,
  );
}
