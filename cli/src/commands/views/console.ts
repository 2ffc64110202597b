// SPDX-License-Identifier: Apache-2.0

import { millpondError } from "@millpond/api";
import { splitAddresses } from "@millpond/platform";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { connect, isUnreachable, resolveEndpoint } from "../../connection/connection.ts";
import { type ConsoleLink, makeConsoleLink } from "../../connection/console-link.ts";
import { renderObject } from "../../output/resources.ts";

export async function run(values: Values<"console">): Promise<number> {
  const { address, link, expiresAt } = await firstLink(values);
  process.stdout.write(
    values.output === "json"
      ? renderObject("ConsoleLink", { address, link, expiresAt })
      : `console   ${address}\nlog in    ${link} (once, within 10 minutes)\n`,
  );
  return exitStatus.ok;
}

/** Calls the controllers in turn until one answers. */
async function firstLink(values: Values<"console">): Promise<ConsoleLink> {
  const endpoint = resolveEndpoint(values, process.env);
  let failure: unknown = millpondError("MILLPOND_E_NOT_CONFIGURED", "no controller is configured");
  for (const controller of splitAddresses(endpoint.controller)) {
    try {
      return await makeConsoleLink(connect({ ...endpoint, controller }));
    } catch (error) {
      if (!isUnreachable(error)) throw error;
      failure = error;
    }
  }
  throw failure;
}
