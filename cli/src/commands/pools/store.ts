// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
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
  const count = (table: string): number => copied.get(table) ?? 0;
  process.stdout.write(
    `copied ${count("claims")} claims, ${count("nodes")} nodes, ${count("queues")} queues, ${count("tenants")} tenants, ` +
      `${count("tokens")} tokens, ${count("events")} events and ${count("audit")} records of the audit\n`,
  );
  return exitStatus.ok;
}
