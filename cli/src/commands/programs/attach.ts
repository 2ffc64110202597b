// SPDX-License-Identifier: Apache-2.0

import { signalProcess } from "@millpond/agent";
import { millpondError } from "@millpond/api";
import type { Values } from "../../command-line/command-values.ts";
import { follow, startOfLastLines, toStandardOutput } from "../../job/follow.ts";
import { jobsDirectory, jobState, logOf, requireJob } from "../../job/job.ts";
import { userStateDirectory } from "@millpond/platform";

/** Signals that the runner forwards to its program. */
const passed = ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"] as const;

export async function run(values: Values<"attach">, [name = ""]: readonly string[]): Promise<number> {
  const jobs = jobsDirectory(userStateDirectory(process.env));
  const { runner } = requireJob(jobs, name);
  const path = logOf(jobs, name);
  for (const signal of passed) process.on(signal, () => void signalProcess(runner, signal));
  await follow(path, {
    from: values.tail === undefined ? 0 : await startOfLastLines(path, values.tail),
    signal: new AbortController().signal,
    isOver: () => {
      const state = jobState(requireJob(jobs, name));
      return state === "ended" || state === "lost";
    },
    write: toStandardOutput,
  });
  const { status } = requireJob(jobs, name);
  if (status !== null) return status;
  throw millpondError(
    "MILLPOND_E_PROGRAM",
    `the job ${name} is lost: the millpond process that ran it was killed`,
    {
      remedy: "Start it again; its claim is released when its lease expires.",
    },
  );
}
