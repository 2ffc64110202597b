// SPDX-License-Identifier: Apache-2.0

// Programs in network, mount and process namespaces of their own. They end with the process that started them, however
// that ends: a killed test leaves no kubelet behind.

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

/** Starts a shell script as the first process of new namespaces. Needs root. */
export function spawnInNamespaces(script: string, environment: NodeJS.ProcessEnv): ChildProcess {
  const unshare = ["unshare", "--kill-child=KILL", "-n", "-m", "-p", "-f", "--mount-proc"];
  const propagation = ["--propagation", "private"];
  // The kernel kills `unshare` with its parent, and the first process, with which all others of its namespace end, with `unshare`.
  return spawn("setpriv", ["--pdeathsig", "KILL", ...unshare, ...propagation, "sh", script], {
    stdio: ["ignore", "pipe", "pipe"],
    env: environment,
  });
}

/** Returns the process id, as seen from here, of the first process of a child's namespaces; empty: it does not exist yet. */
export function firstProcessOf(child: ChildProcess | undefined): string {
  const path = `/proc/${child?.pid}/task/${child?.pid}/children`;
  return existsSync(path) ? (readFileSync(path, "utf8").trim().split(" ")[0] ?? "") : "";
}
