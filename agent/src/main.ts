// SPDX-License-Identifier: Apache-2.0

// The agent as a program of its own; `millpond agent` runs the same.

import { runAgentCommand } from "./command.ts";
import { errorText } from "./process/error-text.ts";

try {
  process.exitCode = await runAgentCommand(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`error: ${errorText(error)}\n`);
  process.exitCode = 1;
}
