// SPDX-License-Identifier: Apache-2.0

import { runControllerCommand } from "@millpond/controller";
import { runService } from "../service-process.ts";

/** `millpond controller`: a controller as this process. It reads its own arguments. */
export function run(_values: object, args: readonly string[]): Promise<number> {
  return runService(() => runControllerCommand(args));
}
