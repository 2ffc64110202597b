// SPDX-License-Identifier: Apache-2.0

// What runs in a Kubernetes cluster, as a program.

import { runKubernetesCommand } from "./command.ts";

try {
  process.exitCode = await runKubernetesCommand(process.argv.slice(2), process.env);
} catch (error) {
  const message = error instanceof Error && "rawMessage" in error ? String(error.rawMessage) : String(error);
  process.stderr.write(`error: ${message}\n`);
  process.exitCode = 1;
}
