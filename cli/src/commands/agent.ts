// SPDX-License-Identifier: Apache-2.0

import { runAgentCommand } from "@millpond/agent";
import { runService } from "../service-process.ts";

/** `millpond agent`: the agent of a node as this process. It reads its own arguments. */
export function run(_values: object, args: readonly string[]): Promise<number> {
  return runService(() => runAgentCommand(args));
}
