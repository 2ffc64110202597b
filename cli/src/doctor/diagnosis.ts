// SPDX-License-Identifier: Apache-2.0

import type { Finding } from "./check.ts";
import { checkDriver, checkEnvironment, checkNative, checkNode, checkSharedMemory } from "./machine.ts";
import { checkContextFile, checkPool } from "./pool.ts";

/** Checks this machine and the pool. */
export async function diagnose(
  options: Parameters<typeof checkPool>[0],
  environment: NodeJS.ProcessEnv,
): Promise<readonly Finding[]> {
  const { findings, native } = await checkNative(environment);
  return [
    checkNode(),
    ...findings,
    ...(native === undefined ? [] : [await checkDriver(native)]),
    checkSharedMemory(),
    ...checkEnvironment(environment, native),
    ...checkContextFile(environment),
    ...(await checkPool(options, environment)),
  ];
}
