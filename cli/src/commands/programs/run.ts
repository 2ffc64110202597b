// SPDX-License-Identifier: Apache-2.0

import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { existingClaim, resolveRequest } from "../../claim/claim-request.ts";
import { findProgram, SignalRelay } from "../../claim/program.ts";
import { StoppedLeases } from "../../claim/stopped-leases.ts";
import { WaitingDisplay } from "../../claim/waiting-display.ts";
import type { Values } from "../../command-line/command-values.ts";
import { ExitError, reportError } from "../../command-line/errors.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { findNativeFiles } from "../../host/native-files.ts";
import type { Predecessor } from "../../job/after.ts";
import { describeTasks, parseArray, runTasks, type TaskArray } from "../../job/array.ts";
import { Task, type TaskPlan } from "../../job/task.ts";
import type { Profile } from "../../profile/profile.ts";

/** Records the steps of a job for `millpond jobs`. */
interface Progress {
  readonly name: string | undefined;
  readonly announce: () => void;
  readonly began: () => void;
}

export async function run(values: Values<"run">, [name = "", ...args]: readonly string[]): Promise<number> {
  // All errors that can be found locally are found before the first call to the pool.
  const { client } = findNativeFiles(process.env);
  const array = values.array === undefined ? undefined : parseArray(values.array);
  const after = values.after === undefined ? [] : await readAfter(values.after);
  const connection = openConnection(values);
  const request = resolveRequest(values);
  const existing = existingClaim(values, process.env);
  if (values.requeue && !values.wait) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "--requeue waits for capacity again, and --no-wait never waits",
      { remedy: "Omit one of them." },
    );
  }
  if (values.trace !== undefined && values.profile !== undefined) {
    throw millpondError("MILLPOND_E_INVALID", "--trace and --profile are both given", {
      remedy: "Omit --trace: the profile contains the calls.",
    });
  }
  if (array !== undefined && request.gang !== undefined) {
    throw millpondError("MILLPOND_E_INVALID", "--array and --gang are both given", {
      remedy: "Start each member of a gang with a `millpond run` of its own.",
    });
  }
  const plan = { connection, request, existing, values, program: name, args, client };
  const job = values.detach ? await openJob([name, ...args]) : undefined;
  if (values.detach && job === undefined) {
    // Fails before the runner is started if there is no such program.
    findProgram(name, process.env);
    return await detachJob(values, [name, ...args]);
  }
  using profile = values.profile === undefined ? undefined : await openProfile(values.profile);
  const calls = profile?.callsFile ?? values.trace;
  const log = calls === undefined ? undefined : traceTo(calls, process.env["MILLPOND_LOG"]);
  using stopped = new StoppedLeases(connection);
  const whole = { ...plan, log, profile: profile?.deviceFiles, stopped };
  const progress: Progress = {
    name: values.name ?? job?.name,
    announce: () => job?.announce(),
    began: () => job?.began(),
  };
  let status: number = exitStatus.failed;
  try {
    if (after.length > 0) await waitUntilAfter(after, connection, progress);
    status =
      array === undefined
        ? await new Task(whole, taskOptions(progress.name ?? "", progress)).run()
        : await runArray(whole, array, progress);
    return status;
  } catch (error) {
    if (error instanceof ExitError) ({ status } = error);
    throw error;
  } finally {
    job?.ended(status);
    if (profile !== undefined) process.stderr.write(`millpond: ${await written(profile)}\n`);
  }
}

/** Loaded only for programs that wait for others. */
async function readAfter(texts: readonly string[]): Promise<readonly Predecessor[]> {
  const { parsePredecessors } = await import("../../job/after.ts");
  return parsePredecessors(texts);
}

/** @throws ExitError with the status of a predecessor that had to succeed, or after a signal */
async function waitUntilAfter(
  after: readonly Predecessor[],
  connection: Connection,
  progress: Progress,
): Promise<void> {
  const { checkPredecessors, waitForPredecessors } = await import("../../job/after.ts");
  const { jobsDirectory } = await import("../../job/job.ts");
  const { userStateDirectory } = await import("@millpond/platform");
  using signals = new SignalRelay();
  using display = new WaitingDisplay(process.stderr);
  const options = {
    jobs: jobsDirectory(userStateDirectory(process.env)),
    connection,
    signal: signals.cancelled,
    onWaiting: (why: string) => display.show(why),
  };
  try {
    await checkPredecessors(after, options);
    progress.announce();
    const failure = await waitForPredecessors(after, options);
    display[Symbol.dispose]();
    if (failure === undefined) return;
    process.stderr.write(`millpond: ${failure.why}\n`);
    throw new ExitError(failure.status);
  } catch (error) {
    if (!signals.cancelled.aborted) throw error;
    display[Symbol.dispose]();
    process.stderr.write("millpond: cancelled\n");
    throw new ExitError(signals.cancelStatus);
  }
}

/** Loaded only for profiles. */
async function openProfile(file: string): Promise<Profile> {
  const { Profile: Kind } = await import("../../profile/profile.ts");
  return new Kind(file);
}

/** The program's exit status counts, whatever happens to its profile. */
async function written(profile: Profile): Promise<string> {
  try {
    return await profile.write();
  } catch (error) {
    return `the profile is not complete: ${error instanceof Error ? error.message : String(error)}`;
  }
}

function taskOptions(claimName: string, progress?: Progress) {
  return {
    claimName,
    environment: {},
    label: "",
    hasInput: true,
    onClaim: () => progress?.announce(),
    onBegin: () => progress?.began(),
  };
}

/** Loaded only for jobs, so that a program in the foreground starts sooner. */
async function openJob(command: readonly string[]) {
  const { JobRunner } = await import("../../job/job.ts");
  return JobRunner.ofProcess(process.env, command);
}

async function detachJob({ name }: Values<"run">, command: readonly string[]): Promise<number> {
  const { detach } = await import("../../job/detach.ts");
  const { jobsDirectory, newJobName } = await import("../../job/job.ts");
  const { userStateDirectory } = await import("@millpond/platform");
  return await detach(jobsDirectory(userStateDirectory(process.env)), name ?? newJobName(), command);
}

/** Runs each task as a program in a claim of its own, without standard input. */
async function runArray(plan: TaskPlan, array: TaskArray, progress: Progress): Promise<number> {
  using signals = new SignalRelay();
  // Runs each task as a program in a claim of its own, without standard input.
  process.setMaxListeners(0);
  const runTask = async (index: number): Promise<number> => {
    const task = new Task(plan, {
      claimName: progress.name === undefined ? "" : `${progress.name}-${index}`,
      environment: {
        MILLPOND_ARRAY_INDEX: String(index),
        MILLPOND_ARRAY_COUNT: String(array.indexes.length),
      },
      label: `[${index}] `,
      hasInput: false,
      onClaim: progress.announce,
      onBegin: progress.began,
    });
    try {
      return await task.run();
    } catch (error) {
      if (!(error instanceof ExitError && error.cause === undefined)) process.stderr.write(`[${index}] `);
      return reportError(error);
    }
  };
  const statuses = await runTasks(array, signals.cancelled, runTask);
  process.stderr.write(`millpond: ${describeTasks(array, statuses)}\n`);
  if (statuses.size < array.indexes.length) return signals.cancelStatus;
  return Math.max(...statuses.values());
}

/**
 * Returns `MILLPOND_LOG` for a trace into a file, with the level of `before`. A file for all processes is truncated, so that
 * it holds only this run.
 *
 * @throws MILLPOND_E_INVALID for a file that cannot be written
 */
function traceTo(file: string, before = ""): string {
  const path = resolve(file);
  try {
    if (!path.includes("%")) writeFileSync(path, "");
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw millpondError("MILLPOND_E_INVALID", `--trace ${quote(file)} cannot be written: ${why}`);
  }
  const [level] = /^(?:off|error|warn|info|debug|trace)(?=,|$)/.exec(before) ?? [];
  return level === undefined ? path : `${level},${path}`;
}
