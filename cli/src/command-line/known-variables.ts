// SPDX-License-Identifier: Apache-2.0

import { commandSpecs } from "../command-table/command-table.ts";

/** Variables that a part of Millpond reads, or gives to programs, and the command table does not name. */
const otherVariables = [
  "MILLPOND_AGENT_TOKENS",
  "MILLPOND_ARRAY_COUNT",
  "MILLPOND_ARRAY_INDEX",
  "MILLPOND_CONFIG",
  "MILLPOND_DEBUG",
  "MILLPOND_HOSTS",
  "MILLPOND_JOB",
  "MILLPOND_LINK_SECRET",
  "MILLPOND_LOG",
  "MILLPOND_NATIVE_DIR",
  "MILLPOND_RANK",
  "MILLPOND_RECONNECT_GRACE",
  "MILLPOND_SYNC",
  "MILLPOND_TICKET",
  "MILLPOND_TOKEN_FILE",
  "MILLPOND_USER_TOKENS",
  "MILLPOND_WORKER",
  "MILLPOND_WORLD_SIZE",
] as const;

/** Those of the software GPU, of pods, and of tests. */
const otherPrefixes = ["MILLPOND_SOFTGPU_", "MILLPOND_TEST_", "MILLPOND_POD_"] as const;

/** Variables that look like Millpond's and that no part of it reads, as a misspelt one is not. */
export function unknownVariables(environment: NodeJS.ProcessEnv): readonly string[] {
  const known = new Set<string>([
    ...otherVariables,
    ...Object.values(commandSpecs).flatMap(({ options }) =>
      Object.values(options).flatMap(({ env }) => (env === undefined ? [] : [env])),
    ),
  ]);
  return Object.keys(environment).filter(
    (name) =>
      name.startsWith("MILLPOND_") &&
      !known.has(name) &&
      !otherPrefixes.some((prefix) => name.startsWith(prefix)),
  );
}
