// SPDX-License-Identifier: Apache-2.0

// The controller as a program of its own; `millpond controller` runs the same.

import { ConnectError } from "@connectrpc/connect";
import { runControllerCommand } from "./command.ts";

try {
  process.exitCode = await runControllerCommand(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`error: ${ConnectError.from(error).rawMessage}\n`);
  process.exitCode = 1;
}
