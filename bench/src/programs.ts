// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { findNativeFiles } from "@millpond/cli";
import { pinned } from "./cpu-sets.ts";

/** The measuring programs. Absolute paths. */
export interface Programs {
  readonly worker: string;
  readonly client: string;
  readonly softgpu: string;
  /** Calls the plain driver API of a library given by path. */
  readonly driverBench: string;
  /** Uses the command stream without a client library. */
  readonly transportBench: string;
  /** One tenant of a shared GPU. */
  readonly shareBench: string;
}

/** Finds the native programs as the CLI does. Throws an Error that names the missing one. */
export function findPrograms(environment: NodeJS.ProcessEnv): Programs {
  const { worker, client, softgpu } = findNativeFiles(environment);
  const candidates = [join(dirname(worker), "bench"), join(dirname(worker), "..", "bench")];
  const directory = candidates.find((candidate) => existsSync(join(candidate, "driver-bench")));
  if (directory === undefined)
    throw new Error(`driver-bench is in none of ${candidates.join(", ")}: run npm run build`);
  return {
    worker,
    client,
    softgpu,
    driverBench: join(directory, "driver-bench"),
    transportBench: join(directory, "transport-bench"),
    shareBench: join(directory, "share-bench"),
  };
}

/** Time limit of one measuring program, in milliseconds. */
const timeoutMs = 300_000;

/**
 * Runs a measuring program and returns its output.
 *
 * @param variables added to the inherited environment, from which Millpond's variables are removed
 * @param cpus processors in the form of taskset(1); empty: all
 */
export function measureWith(
  program: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
  cpus = "",
): Promise<string> {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("MILLPOND_"));
  const env = { ...Object.fromEntries(inherited), ...variables };
  return new Promise((resolve, reject) => {
    const [command, itsArgs] = pinned(cpus, program, args);
    execFile(command, itsArgs, { env, timeout: timeoutMs }, (error, stdout, stderr) => {
      if (error === null) resolve(stdout);
      else reject(new Error(`${program} ${args.join(" ")} failed: ${stderr.trim() || error.message}`));
    });
  });
}
