// SPDX-License-Identifier: Apache-2.0

import { formatAge, formatTime } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { connect, resolveEndpoint } from "../../connection/connection.ts";
import { renderObject, time } from "../../output/resources.ts";

/** `millpond whoami`: the identity comes from the controller, not from the context. */
export async function run(values: Values<"whoami">): Promise<number> {
  const endpoint = resolveEndpoint(values, process.env);
  const { name, role, tenant, claim, node, expiresAt } = await connect(endpoint).access.getCaller({});
  const { controller, source } = endpoint;
  if (values.output === "json") {
    const identity = { name, role, tenant, claim, node, expiresAt: time(expiresAt) };
    process.stdout.write(renderObject("Caller", { ...identity, controller, source }));
    return exitStatus.ok;
  }
  const left = formatAge(Number(expiresAt) - Date.now() / 1000);
  const lines: readonly (readonly [string, string])[] = [
    ["name", name],
    ["role", role],
    ["tenant", tenant === "" ? "all" : tenant],
    ...(claim === "" ? [] : [["claim", claim] as const]),
    ...(node === "" ? [] : [["node", node] as const]),
    ["expires", expiresAt === 0n ? "never" : `${formatTime(expiresAt)} (in ${left})`],
    ["controller", controller],
    ["from", source],
  ];
  process.stdout.write(lines.map(([title, text]) => `${title.padEnd(12)} ${text}\n`).join(""));
  return exitStatus.ok;
}
