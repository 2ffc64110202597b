// SPDX-License-Identifier: Apache-2.0

import { setTimeout as delay } from "node:timers/promises";
import {
  findProcessesByArgument,
  isProcessAlive,
  type ProcessIdentity,
  signalProcess,
} from "../process/process-identity.ts";
import { RunDirectory, readWorkerRecord, removeWorkerDirectory } from "../run-directory/run-directory.ts";

const pollMs = 20;

/**
 * Ends every worker that an earlier agent left on a run directory, sessions included, and removes their files: for a
 * caller that owns the directory and does not want the next agent to adopt them.
 *
 * @param graceMs how long they may take to obey SIGTERM before they are killed
 * @throws MILLPOND_E_STATE_LOCKED while an agent uses the directory
 */
export async function endOrphanedWorkers(runPath: string, graceMs: number): Promise<void> {
  using run = RunDirectory.open(runPath);
  await Promise.all(
    run.workerDirectories().map(async (directory) => {
      const record = readWorkerRecord(directory);
      const processes =
        record === undefined ? findProcessesByArgument(directory.controlPath) : [record.process];
      await Promise.all(processes.map((identity) => endProcess(identity, graceMs)));
      // The next agent on the directory reports them to the controller.
      if (record?.session) run.addEndedSession({ ...record.session, hadClient: record.client !== null });
      removeWorkerDirectory(directory);
    }),
  );
}

/** Ends one process: SIGTERM, then SIGKILL when it does not end in time. Resolves when it is gone. */
export async function endProcess(identity: ProcessIdentity, graceMs: number): Promise<void> {
  const deadline = Date.now() + graceMs;
  signalProcess(identity, "SIGTERM");
  while (isProcessAlive(identity)) {
    if (Date.now() > deadline) signalProcess(identity, "SIGKILL");
    await delay(pollMs);
  }
}
