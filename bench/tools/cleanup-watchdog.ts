// SPDX-License-Identifier: Apache-2.0

// node bench/tools/cleanup-watchdog.ts FOLDER: a cleanup watchdog. Waits for the end of its standard input, which means that
// its parent process has ended. Then it kills the remaining processes whose temporary files or executables are in the folder,
// and removes the folder.

import { readdir, readFile, readlink, rm } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

const pollMs = 50;
/** Errors for processes that have ended in the meantime, or that belong to other users. */
const notOurs: ReadonlySet<string | undefined> = new Set(["ENOENT", "ESRCH", "EACCES", "EPERM"]);

/** Resolves with an empty text when there is nothing left to read. */
async function look(read: Promise<string>): Promise<string> {
  try {
    return await read;
  } catch (error) {
    if (notOurs.has((error as NodeJS.ErrnoException).code)) return "";
    throw error;
  }
}

async function livesIn(folder: string, pid: string): Promise<boolean> {
  const [command, environment, directory] = await Promise.all([
    look(readFile(`/proc/${pid}/cmdline`, "utf8")),
    look(readFile(`/proc/${pid}/environ`, "utf8")),
    look(readlink(`/proc/${pid}/cwd`)),
  ]);
  return (
    command.includes(`${folder}/`) ||
    environment.split("\0").includes(`TMPDIR=${folder}`) ||
    directory.startsWith(`${folder}/`)
  );
}

async function leftIn(folder: string): Promise<readonly number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const found = await Promise.all(
    pids.map(async (pid) => ((await livesIn(folder, pid)) ? [Number(pid)] : [])),
  );
  return found.flat();
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!notOurs.has((error as NodeJS.ErrnoException).code)) throw error;
  }
}

const [folder = ""] = process.argv.slice(2);
if (!folder.startsWith("/")) throw new Error("needs the path of a folder");
for await (const _ of process.stdin) {
  // The input is discarded.
}
for (;;) {
  const left = await leftIn(folder);
  if (left.length === 0) break;
  for (const pid of left) kill(pid);
  await sleep(pollMs);
}
await rm(folder, { recursive: true, force: true });
