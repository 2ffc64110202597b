// SPDX-License-Identifier: Apache-2.0

import { writeFileSync } from "node:fs";
import { basename, dirname, resolve } from "node:path";
import { formatBytes, formatDuration, millpondError, quote } from "@millpond/api";
import { ClaimHolder, type WaitOptions } from "../../claim/claim-holder.ts";
import { existingClaim, resolveRequest } from "../../claim/claim-request.ts";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, openConnection } from "../../connection/connection.ts";
import { ExitError } from "../../command-line/errors.ts";
import { programLibraryPath } from "../../host/library-path.ts";
import { findNativeFiles } from "../../host/native-files.ts";
import { claimStateWord } from "../../output/resources.ts";
import { findProgram, runProgram, SignalRelay } from "../../claim/program.ts";
import { countGpusOfHost, visibleDevices } from "../../host/visible-devices.ts";
import { WaitingDisplay } from "../../claim/waiting-display.ts";

/** Variables that would lead the program to something else than the claim that was made for it. */
const misleading = ["MILLPOND_WORKER", "MILLPOND_TICKET", "MILLPOND_LINK_SECRET"] as const;

export async function run(values: Values<"run">, [name = "", ...args]: readonly string[]): Promise<number> {
  // All that can be wrong on this side is found before anything is asked of the pool.
  const { client } = findNativeFiles(process.env);
  const path = findProgram(name, process.env);
  const connection = openConnection(values);
  const request = resolveRequest(values);
  const existing = existingClaim(values, process.env);
  const log = values.trace === undefined ? undefined : traceTo(values.trace, process.env["MILLPOND_LOG"]);

  if (values.requeue && !values.wait) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      "--requeue waits for room again, and --no-wait waits for none",
      {
        remedy: "Leave one of them out.",
      },
    );
  }
  using signals = new SignalRelay();
  let created: ClaimHolder | undefined;
  try {
    using display = new WaitingDisplay();
    const waiting: WaitOptions = {
      timeoutSeconds: values.timeout ?? 0,
      signal: signals.cancelled,
      onWaiting: (why: string) => display.show(why),
    };
    const holder =
      existing === undefined
        ? await ClaimHolder.create(connection, request, {
            ...waiting,
            name: values.name ?? "",
            noWait: !values.wait,
            program: basename(name),
          })
        : await ClaimHolder.join(connection, existing, signals.cancelled);
    created = holder;
    await holder.waitUntilBound(waiting);
    display.end(`claim ${holder.claim.name} is ${claimStateWord(holder.claim.state)}`);
    signals.cancelled.throwIfAborted();
    for (;;) {
      if (values.verbose) say(describeGrant(holder));
      const environment = environmentFor(connection, holder, client, values);
      // The caller's own token may do whatever the caller may: it is not for programs.
      environment["MILLPOND_TOKEN"] = await holder.programToken(signals.cancelled);
      if (log !== undefined) environment["MILLPOND_LOG"] = log;
      const { requeues } = holder.claim;
      const { status, isTaken } = await runWhileKept(holder, signals, values, () =>
        runProgram(path, args, { name, environment, signals }),
      );
      if (!isTaken) return status;
      if (!values.requeue) return exitStatus.preempted;
      signals.letGo();
      if (!(await holder.yieldNow(requeues, signals.cancelled))) return exitStatus.preempted;
      await waitAgain(holder, waiting);
    }
  } catch (error) {
    if (!signals.cancelled.aborted) throw error;
    say(created?.isOwn === true ? `cancelled, claim ${created.claim.name} is given back` : "cancelled");
    throw new ExitError(signals.cancelStatus);
  } finally {
    const problem = await created?.release();
    if (problem !== undefined) say(problem);
    else if (values.verbose && created?.isOwn === true) say(`claim ${created.claim.name} given back`);
  }
}

interface Outcome {
  readonly status: number;
  /** The program's vGPUs were taken back, or were about to be. */
  readonly isTaken: boolean;
}

async function runWhileKept(
  holder: ClaimHolder,
  signals: SignalRelay,
  values: Values<"run">,
  runIt: () => Promise<number>,
): Promise<Outcome> {
  const done = new AbortController();
  const signal = values.noticeSignal ?? "SIGTERM";
  let isTaken = false;
  const onNotice = (seconds: number, why: string): void => {
    isTaken = true;
    say(`the program loses its vGPUs in ${formatDuration(seconds)} and gets ${signal}: ${why}`);
    signals.send(signal);
  };
  const { requeues } = holder.claim;
  const kept = holder.keep(done.signal, onNotice).then((reason) => {
    if (reason === undefined) return;
    const isUnannounced = !isTaken && (holder.hasEnded || holder.claim.requeues > requeues);
    say(`the program loses its vGPUs${isUnannounced ? ` and gets ${signal}` : ""}: ${reason}`);
    if (isUnannounced) {
      // There was no time for notice: its claim was released, or its node was lost.
      isTaken = true;
      signals.send(signal);
    }
  });
  try {
    return { status: await runIt(), isTaken };
  } finally {
    done.abort();
    await kept;
  }
}

/** Waits for room once more, with a display of its own. */
async function waitAgain(holder: ClaimHolder, waiting: WaitOptions): Promise<void> {
  using display = new WaitingDisplay();
  await holder.waitUntilBound({ ...waiting, onWaiting: (why) => display.show(why) });
  display.end(`claim ${holder.claim.name} is ${claimStateWord(holder.claim.state)} again`);
}

function environmentFor(
  connection: Connection,
  holder: ClaimHolder,
  client: string,
  values: Values<"run">,
): NodeJS.ProcessEnv {
  const environment: NodeJS.ProcessEnv = {
    ...process.env,
    MILLPOND_CONTROLLER: connection.controller,
    MILLPOND_CLAIM: holder.claim.name,
  };
  // The certificate itself: a context has no file, and the program may be in another directory.
  if (connection.ca !== undefined) environment["MILLPOND_CA"] = connection.ca;
  // A lazy claim is waited for by its program.
  if (values.timeout !== undefined) environment["MILLPOND_WAIT_TIMEOUT"] = String(values.timeout);
  if (values.transport !== undefined) environment["MILLPOND_TRANSPORT"] = values.transport;
  for (const variable of misleading) delete environment[variable];
  const visible = visibleDevices(process.env["CUDA_VISIBLE_DEVICES"], holder.claim.gpus, countGpusOfHost());
  if (visible !== undefined) environment["CUDA_VISIBLE_DEVICES"] = visible;
  environment["LD_LIBRARY_PATH"] = programLibraryPath(process.env, dirname(client), process.execPath);
  return environment;
}

/**
 * `MILLPOND_LOG` for a trace into a file, the level kept that `before` has. Where one file takes all processes, it is
 * emptied, so that it has this run in it and no other.
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

function describeGrant(holder: ClaimHolder): string {
  const { name, allocation, lazy } = holder.claim;
  if (lazy && allocation === undefined) return `claim ${name} is dormant until its program calls CUDA`;
  const devices = allocation?.devices.map(
    (device) => `${device.uuid} (${formatBytes(device.memoryBytes)}, ${device.computePercent}% compute)`,
  );
  return `claim ${name} has ${devices?.join(", ") ?? "nothing"} on ${allocation?.node ?? "no node"}`;
}

/** To people, beside whatever the program writes. */
function say(text: string): void {
  process.stderr.write(`millpond: ${text}\n`);
}
