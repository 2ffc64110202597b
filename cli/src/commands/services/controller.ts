// SPDX-License-Identifier: Apache-2.0

import { runControllerCommand } from "@millpond/controller";
import type { Values } from "../../command-line/command-values.ts";
import { toArguments } from "../../service/service-options.ts";
import { readServiceAgain } from "../../service/service-reload.ts";
import { runService } from "../../service/service-process.ts";

/** `millpond controller`: runs a controller in this process. */
export function run(values: Values<"controller">): Promise<number> {
  return runService((onReady) =>
    runControllerCommand(toArguments("controller", values), {
      onReady,
      readAgain: () => toArguments("controller", readServiceAgain("controller")),
    }),
  );
}
