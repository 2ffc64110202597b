// SPDX-License-Identifier: Apache-2.0
// Shared by all builds with the CUDA compiler: finding it, and incremental builds.
import { lstat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { find } from "../command.ts";
import type { Progress } from "../steps.ts";

/** The CUDA compiler: $NVCC, the one in PATH, or the one in the toolkit's default location. */
export async function findNvcc(): Promise<string | undefined> {
  const chosen = process.env["NVCC"];
  return chosen !== undefined && chosen !== "" ? chosen : find("nvcc", ["/usr/local/cuda/bin"]);
}

/** Modification time of a file; 0 for one that is missing or a link. */
async function modified(path: string): Promise<number> {
  try {
    const info = await lstat(path);
    return info.isSymbolicLink() ? 0 : info.mtimeMs;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return 0;
    throw error;
  }
}

/** Whether an output is missing or older than one of its inputs. */
export async function isStale(output: string, inputs: string[]): Promise<boolean> {
  const made = await modified(output);
  const times = await Promise.all(inputs.map(modified));
  return made === 0 || times.some((time) => time > made);
}

/** Runs the jobs, as many at a time as the machine has cores. */
export async function runAll(jobs: (() => Promise<void>)[], progress: Progress): Promise<void> {
  let next = 0;
  let done = 0;
  const lane = async (): Promise<void> => {
    for (let job = jobs[next++]; job; job = jobs[next++]) {
      await job();
      progress.fraction(++done / jobs.length);
    }
  };
  await Promise.all(Array.from({ length: Math.min(jobs.length, availableParallelism()) }, lane));
}
