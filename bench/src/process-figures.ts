// SPDX-License-Identifier: Apache-2.0

// What the kernel tells of other processes.

import { readFile } from "node:fs/promises";

/** Unit of the times in /proc, seconds: the kernel tells them to programs in hundredths. */
const tickSeconds = 0.01;

/** Processor time of a process since its start, seconds. */
export async function cpuSeconds(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  // The name before may hold anything, so the fields are counted from behind it: the 14th and the 15th.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * tickSeconds;
}

/** Memory of a process that is in RAM, bytes. */
export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}
