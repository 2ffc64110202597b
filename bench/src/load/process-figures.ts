// SPDX-License-Identifier: Apache-2.0

// Measurements of other processes, from /proc.

import { readFile } from "node:fs/promises";

/** Unit of the times in /proc, in seconds: USER_HZ is 100. */
const tickSeconds = 0.01;

/** CPU time of a process since its start, in seconds. */
export async function cpuSeconds(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  // The process name may contain any character, so the fields are counted from its closing parenthesis: the 14th and the
  // 15th.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * tickSeconds;
}

/** Resident memory of a process, in bytes. */
export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}
