// SPDX-License-Identifier: Apache-2.0

// What runs in a Kubernetes cluster, as a program.

import { runKubernetesCommand } from "./command.ts";

try {
  process.exitCode = await runKubernetesCommand(process.argv.slice(2), process.env);
} catch (error) {
  process.stderr.write(`error: ${describe(error)}\n`);
  process.exitCode = 1;
}

/** With what is behind it: `fetch failed` alone says nothing. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const message = "rawMessage" in error ? String(error.rawMessage) : error.message;
  return error.cause === undefined ? message : `${message}: ${describe(error.cause)}`;
}
