// SPDX-License-Identifier: Apache-2.0

import { existsSync } from "node:fs";
import { millpondError } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import { configPath, readServiceFile, type ServiceName } from "../../service/service-options.ts";

/** `millpond config check`. */
export async function run(_values: object, [, service = "agent", file]: readonly string[]): Promise<number> {
  // The parser accepts no other action.
  const name: ServiceName = service === "controller" ? "controller" : "agent";
  const path = file ?? configPath(name);
  if (file === undefined && !existsSync(path)) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `there is no ${path}`, {
      remedy: "Name the file, or write one: docs/reference/configuration.md.",
    });
  }
  const members = Object.entries(readServiceFile(name, path));
  const lines = members.map(([key, text]) => `  ${key}: ${text}\n`);
  process.stdout.write(`${path} is valid for millpond ${name}\n${lines.join("")}`);
  return exitStatus.ok;
}
