// SPDX-License-Identifier: Apache-2.0

import { runAgentCommand } from "@millpond/agent";
import type { Values } from "../../command-line/command-values.ts";
import { type NodeOptions, resolveNode } from "../../node/node-defaults.ts";
import { toArguments } from "../../service/service-options.ts";
import { readServiceAgain } from "../../service/service-reload.ts";
import { runService } from "../../service/service-process.ts";

/** `millpond agent`: runs the agent of a node in this process. */
export function run(values: Values<"agent">): Promise<number> {
  return runService(async (onReady) => {
    const node: NodeOptions = await resolveNode(values, process.env);
    Object.assign(process.env, node.environment);
    const toCommandLine = (each: Values<"agent">) => toArguments("agent", { ...each, ...node.options });
    return await runAgentCommand(toCommandLine(values), {
      onReady,
      readAgain: async () => toCommandLine(readServiceAgain("agent")),
    });
  });
}
