// SPDX-License-Identifier: Apache-2.0

import { dirname } from "node:path";
import { formatClaimVariables, formatTime, shellQuote } from "@millpond/api";
import { existingClaim, resolveRequest } from "../../claim/claim-request.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { openConnection } from "../../connection/connection.ts";
import { findNativeFiles } from "../../host/native-files.ts";
import { countGpusOfHost, visibleDevices } from "../../host/visible-devices.ts";

export async function run(values: Values<"env">): Promise<number> {
  const { client } = findNativeFiles(process.env);
  const connection = openConnection(values);
  const request = resolveRequest(values);
  const existing = existingClaim(values, process.env);
  // The caller's own token has all rights of the caller, so programs do not get it.
  const { secret, expiresAt = 0n } =
    existing === undefined
      ? await connection.claims.createProgramToken({ tenant: request.tenant ?? "" })
      : { ...(await connection.claims.createClaimToken({ name: existing })), expiresAt: undefined };
  if (expiresAt > 0n) {
    process.stderr.write(
      `millpond: programs with these variables have GPUs until ${formatTime(Number(expiresAt))}, when your login or token ends\n`,
    );
  }
  const variables: [string, string][] = [
    ["MILLPOND_CONTROLLER", connection.controller],
    ["MILLPOND_TOKEN", secret],
  ];
  if (connection.ca !== undefined) variables.push(["MILLPOND_CA", connection.ca]);
  if (existing === undefined) variables.push(...formatClaimVariables({ gpus: 1, ...request }));
  else variables.push(["MILLPOND_CLAIM", existing]);
  if (values.transport !== undefined) variables.push(["MILLPOND_TRANSPORT", values.transport]);
  if (values.timeout !== undefined) variables.push(["MILLPOND_WAIT_TIMEOUT", String(values.timeout)]);
  const visible = visibleDevices(process.env["CUDA_VISIBLE_DEVICES"], request.gpus ?? 1, countGpusOfHost());
  if (visible !== undefined) variables.push(["CUDA_VISIBLE_DEVICES", visible]);
  const lines = variables.map(([name, value]) => `export ${name}=${shellQuote(value)}`);
  // Expanded by the shell, so that the value at that time is kept and no empty entry, which means the current directory, is
  // added.
  lines.push(`export LD_LIBRARY_PATH=${shellQuote(dirname(client))}"\${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"`);
  process.stdout.write(`${lines.join("\n")}\n`);
  return exitStatus.ok;
}
