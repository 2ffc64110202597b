// SPDX-License-Identifier: Apache-2.0

// The program for Kubernetes clusters: operator, node plugin, agents.

import { runKubernetesCommand } from "./command.ts";

try {
  process.exitCode = await runKubernetesCommand(process.argv.slice(2), process.env);
} catch (error) {
  process.stderr.write(`error: ${describe(error)}\n`);
  process.exitCode = 1;
}

/** With the causes, because `fetch failed` alone is not informative. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ("rawMessage" in error) return String(error.rawMessage);
  return error.cause === undefined ? error.message : `${error.message}: ${describe(error.cause)}`;
}
