// SPDX-License-Identifier: Apache-2.0

import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { isProcessAlive, signalProcess } from "@millpond/agent";
import { millpondError } from "@millpond/api";
import { userStateDirectory } from "@millpond/platform";
import { WaitingDisplay } from "../../claim/waiting-display.ts";
import type { Values } from "../../command-line/command-values.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import { runningPool } from "../../node/pool-directory.ts";

/** First the agents end their sessions, then the controller ends: each has 15 s before it is killed. */
const patienceMs = 60_000;
const pollMs = 50;

export async function run(values: Values<"down">): Promise<number> {
  const path = resolve(values.state ?? userStateDirectory(process.env));
  const up = runningPool(path);
  if (up === undefined) {
    process.stderr.write(`millpond: no pool runs on ${path}\n`);
    return exitStatus.ok;
  }
  using display = new WaitingDisplay();
  signalProcess(up, "SIGTERM");
  const deadline = Date.now() + patienceMs;
  while (isProcessAlive(up)) {
    display.show("waiting for the end of the pool");
    if (Date.now() > deadline) {
      throw millpondError("MILLPOND_E_IN_USE", `the pool on ${path} (process ${up.pid}) has not ended`, {
        remedy: `See ${path}/logs, and end the process.`,
      });
    }
    await delay(pollMs);
  }
  display[Symbol.dispose]();
  process.stdout.write(`the pool on ${path} has ended\n`);
  return exitStatus.ok;
}
