// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { closeSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { ExitError } from "../command-line/errors.ts";
import { exitStatus } from "../command-table/command-table.ts";
import { jobVariable, logOf, makeJob, openLog, readyWord } from "./job.ts";

/**
 * Starts this command again without a terminal, as the runner of a job. Resolves when its claim exists, or with its exit
 * status when it failed before that; then its messages are passed on, and its files are removed.
 */
export async function detach(jobs: string, name: string, command: readonly string[]): Promise<number> {
  makeJob(jobs, name, command);
  const log = openLog(jobs, name);
  const runner = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    detached: true,
    stdio: ["ignore", log, log, "pipe"],
    env: { ...process.env, [jobVariable]: join(jobs, name) },
  });
  closeSync(log);
  const ended = new Promise<number>((resolve, reject) => {
    runner.on("error", reject);
    runner.on("exit", (code) => resolve(code ?? exitStatus.failed));
  });
  const stop = (): void => void runner.kill("SIGTERM");
  process.on("SIGINT", stop).on("SIGTERM", stop).on("SIGHUP", stop);
  try {
    // The fourth stream, after the three standard ones, is for the runner's report.
    const word = await readAll(runner.stdio[3] as Readable);
    if (word === readyWord) {
      runner.unref();
      process.stdout.write(`${name}\n`);
      return exitStatus.ok;
    }
    const status = await ended;
    process.stderr.write(readFileSync(logOf(jobs, name)));
    rmSync(join(jobs, name), { recursive: true, force: true });
    throw new ExitError(status);
  } finally {
    process.off("SIGINT", stop).off("SIGTERM", stop).off("SIGHUP", stop);
  }
}

async function readAll(stream: Readable): Promise<string> {
  let text = "";
  for await (const chunk of stream.setEncoding("utf8")) text += String(chunk);
  return text;
}
