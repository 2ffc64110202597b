// SPDX-License-Identifier: Apache-2.0

import type { GetVersionResponse } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { connect, resolveEndpoint } from "../../connection/connection.ts";
import type { Endpoint } from "../../connection/endpoint.ts";
import { errorParts } from "../../command-line/errors.ts";
import { renderObject } from "../../output/resources.ts";
import { programVersion } from "../../command-line/version.ts";

const patienceMs = 2000;

export async function run(values: Values<"version">): Promise<number> {
  const { endpoint, version, problem } = await askController(values);
  if (values.output === "json") {
    const controller =
      endpoint === undefined || version === undefined
        ? null
        : {
            version: version.version,
            api: version.api,
            url: endpoint.controller,
            id: version.controller,
            leaderUrl: version.leaderUrl,
          };
    process.stdout.write(
      renderObject("Version", {
        client: { version: programVersion, node: process.versions.node },
        controller,
      }),
    );
    return exitStatus.ok;
  }
  const controllerLine =
    endpoint !== undefined && version !== undefined
      ? `${version.version} at ${endpoint.controller}${leadOf(version)}`
      : `none (${problem})`;
  process.stdout.write(
    `millpond     ${programVersion} (Node ${process.versions.node})\ncontroller   ${controllerLine}\n`,
  );
  return exitStatus.ok;
}

/** Empty for a single controller, or for the leader. */
function leadOf({ leads, leaderUrl }: GetVersionResponse): string {
  if (leads) return "";
  return leaderUrl === "" ? "; there is no leader now" : `; the leader is at ${leaderUrl}`;
}

async function askController(values: Values<"version">): Promise<{
  readonly endpoint?: Endpoint;
  readonly version?: GetVersionResponse;
  readonly problem: string;
}> {
  try {
    const endpoint = resolveEndpoint(values, process.env);
    const version = await connect(endpoint).pool.getVersion({}, { timeoutMs: patienceMs });
    return { endpoint, version, problem: "" };
  } catch (error) {
    // The version of this program is shown even when the controller does not answer.
    return { problem: errorParts(error).what };
  }
}
