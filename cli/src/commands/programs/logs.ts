// SPDX-License-Identifier: Apache-2.0

import type { Values } from "../../command-line/command-values.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import { follow, startOfLastLines, toStandardOutput } from "../../job/follow.ts";
import { jobsDirectory, jobState, logOf, requireJob } from "../../job/job.ts";
import { userStateDirectory } from "@millpond/platform";

export async function run(values: Values<"logs">, [name = ""]: readonly string[]): Promise<number> {
  const jobs = jobsDirectory(userStateDirectory(process.env));
  requireJob(jobs, name);
  const path = logOf(jobs, name);
  const isOver = (): boolean => {
    const state = jobState(requireJob(jobs, name));
    return !values.follow || state === "ended" || state === "lost";
  };
  await follow(path, {
    from: values.tail === undefined ? 0 : await startOfLastLines(path, values.tail),
    signal: new AbortController().signal,
    isOver,
    write: toStandardOutput,
  });
  return exitStatus.ok;
}
