// SPDX-License-Identifier: Apache-2.0

import { readdirSync, readFileSync } from "node:fs";

/**
 * Identifies one process uniquely: the kernel reuses process ids, but never with the same start time in the same boot.
 * All code that signals or waits for a process that it may not have started goes through this.
 */
export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks after boot at which the process started, as /proc prints it. */
  readonly startTime: string;
  /** Boot in which the two numbers above mean something. */
  readonly bootId: string;
}

let cachedBootId: string | undefined;

/** Identifies this boot of this machine; the same in every container on it. */
export function bootId(): string {
  cachedBootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return cachedBootId;
}

/** The identity of a live process; `undefined` when it does not exist: a zombie counts as gone. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return undefined;
  }
  // The command name stands in parentheses and may itself hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const state = fields[0];
  const startTime = fields[19];
  if (startTime === undefined || state === "Z" || state === "X") return undefined;
  return { pid, startTime, bootId: bootId() };
}

/** Whether exactly this process still runs, and not another one with its number. */
export function isProcessAlive(identity: ProcessIdentity): boolean {
  if (identity.bootId !== bootId()) return false;
  return identifyProcess(identity.pid)?.startTime === identity.startTime;
}

/** Signals exactly this process; false when it is already gone. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isProcessAlive(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ESRCH") return false;
    throw error;
  }
}

/** The user id of a process; undefined: it is gone. */
export function userOfProcess({ pid }: ProcessIdentity): number | undefined {
  try {
    const [, user] = /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    return user === undefined ? undefined : Number(user);
  } catch {
    return undefined;
  }
}

/** The processes of this machine that were started with `argument` as one whole argument of their command line. */
export function findProcessesByArgument(argument: string): ProcessIdentity[] {
  const found: ProcessIdentity[] = [];
  for (const entry of readdirSync("/proc")) {
    const pid = Number(entry);
    if (!Number.isInteger(pid)) continue;
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes(argument)) continue;
    } catch {
      continue; // The process has ended since the listing, or we may not read it.
    }
    const identity = identifyProcess(pid);
    if (identity !== undefined) found.push(identity);
  }
  return found;
}
