// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { constants } from "node:os";
import type { Run } from "./compare.ts";

/** Variables that would change how or where a program runs. */
const misleading = /^(MILLPOND_|CUDA_|LD_)/;

/** Runs a program with these variables in addition to the inherited ones; kills it at the time limit. */
export function runProgram(
  binary: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
  timeoutMs: number,
): Promise<Run> {
  const inherited = Object.entries(process.env).filter(([name]) => !misleading.test(name));
  return new Promise((resolve, reject) => {
    const start = performance.now();
    // In a process group of its own, so that its children end with it.
    const child = spawn(binary, args, {
      env: { ...Object.fromEntries(inherited), ...variables },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    let stdout = "";
    let stderr = "";
    let isLate = false;
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    const endGroup = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
      }
    };
    const timer = setTimeout(() => {
      isLate = true;
      endGroup();
    }, timeoutMs);
    child.on("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    child.on("exit", endGroup);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      const status = code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
      const milliseconds = Math.round(performance.now() - start);
      resolve({ status: isLate ? undefined : status, stdout, stderr, milliseconds });
    });
  });
}
