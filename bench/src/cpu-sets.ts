// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { readFile } from "node:fs/promises";

const runFile = promisify(execFile);

/** Processors in the form of taskset(1): "0-3,8". Empty: all. */
export interface CpuSets {
  readonly client: string;
  readonly worker: string;
  readonly relay: string;
}

/** Reads a list such as "0-3,8" into single numbers. */
export function readCpuList(list: string): number[] {
  return list.split(",").flatMap((part) => {
    const [from = Number.NaN, to = from] = part.split("-").map(Number);
    return Array.from({ length: to - from + 1 }, (_, index) => from + index);
  });
}

/**
 * Gives client and worker disjoint halves of these processors: client and worker on different hosts share none, and one
 * measurement should not depend on cache contents of the other. With a single processor, both use it. A relay between them
 * spins: it gets two of six or more processors, and otherwise takes time from both.
 */
export function divideCpus(cpus: readonly number[], parts: { readonly hasRelay: boolean }): CpuSets {
  if (cpus.length < 2) return { client: "", worker: "", relay: "" };
  const relay = parts.hasRelay && cpus.length >= 6 ? cpus.slice(-2) : [];
  const others = cpus.slice(0, cpus.length - relay.length);
  const half = Math.floor(others.length / 2);
  return {
    client: others.slice(0, half).join(","),
    worker: others.slice(half).join(","),
    relay: relay.join(","),
  };
}

/** The processors that this process may use. */
export async function ownCpus(): Promise<number[]> {
  const status = await readFile("/proc/self/status", "utf8");
  return readCpuList(/^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? "0");
}

/** Moves all threads of a process to these processors; threads that it starts later follow. */
export async function pinProcess(pid: number, cpus: string): Promise<void> {
  if (cpus !== "") await runFile("taskset", ["-acp", cpus, String(pid)]);
}

/** The command that starts a program on these processors. */
export function pinned(cpus: string, program: string, args: readonly string[]): [string, readonly string[]] {
  return cpus === "" ? [program, args] : ["taskset", ["-c", cpus, program, ...args]];
}
