// SPDX-License-Identifier: Apache-2.0

import { countOf, millpondError } from "@millpond/api";
import { controllerStateDirectory } from "@millpond/platform";
import { copyStore } from "@millpond/controller";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";

/** `millpond store copy`. */
export async function run({ from, to }: Values<"store">): Promise<number> {
  if (to === undefined || to === "") {
    throw millpondError("MILLPOND_E_INVALID", "--to is missing: the database to copy to", {
      remedy: "Give --to postgres://user@host:5432/database, or set MILLPOND_STORE.",
    });
  }
  const directory = from ?? controllerStateDirectory(process.env);
  const copied = await copyStore({ from: directory, to });
  const tables = ["claim", "node", "queue", "tenant", "token", "event"] as const;
  const counts = tables.map((noun) => countOf(copied.get(`${noun}s`) ?? 0, noun));
  const records = countOf(copied.get("audit") ?? 0, "record");
  process.stdout.write(`copied ${counts.join(", ")} and ${records} of the audit\n`);
  return exitStatus.ok;
}
