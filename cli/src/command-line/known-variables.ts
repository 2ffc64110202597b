// SPDX-License-Identifier: Apache-2.0

import { commandSpecs } from "../command-table/command-table.ts";

/** Variables outside the command table that a part of Millpond reads, or sets for programs. */
const otherVariables = [
  "MILLPOND_AGENT_TOKENS",
  "MILLPOND_ARRAY_COUNT",
  "MILLPOND_ARRAY_INDEX",
  "MILLPOND_CONFIG",
  "MILLPOND_CUPTI",
  "MILLPOND_DEBUG",
  "MILLPOND_DENY_TABLES",
  "MILLPOND_HOSTS",
  "MILLPOND_JOB",
  "MILLPOND_LANES",
  "MILLPOND_LEASES",
  "MILLPOND_LINK_SECRET",
  "MILLPOND_LOG",
  "MILLPOND_NATIVE_DIR",
  "MILLPOND_PRELOAD",
  "MILLPOND_PROFILE",
  "MILLPOND_RANK",
  "MILLPOND_RECONNECT_GRACE",
  "MILLPOND_SYNC",
  "MILLPOND_TICKET",
  "MILLPOND_TOKEN_FILE",
  "MILLPOND_TRACE_STACKS",
  "MILLPOND_TRUSTED_USERS",
  "MILLPOND_UP_DETACHED",
  "MILLPOND_USER_TOKENS",
  "MILLPOND_WORKER",
  "MILLPOND_WORLD_SIZE",
] as const;

/** Prefixes of the variables of the software GPU, of pods, and of tests. */
const otherPrefixes = ["MILLPOND_SOFTGPU_", "MILLPOND_TEST_", "MILLPOND_POD_"] as const;

/** Returns variables that look like Millpond's but that no part of it reads: they may be misspelt. */
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
