// SPDX-License-Identifier: Apache-2.0

// Keeps the agent of a node running, in the container with its workers. An agent that exits is restarted, and when a
// new release replaces the current one, so does its agent: workers and their sessions continue, and the next agent
// adopts them.

import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";
import type { Release, ReleaseDirectory } from "./release-directory.ts";

export interface KeepOptions {
  readonly releases: ReleaseDirectory;
  /** Requests the end. */
  readonly signal: AbortSignal;
  readonly log: Logger;
  /** A start counts as failed if the agent exits within this many milliseconds. Default 10,000. */
  readonly goodStartMs?: number;
  /** Wait before the next start; doubled for each failed start in a row, up to 16 times as long. Default 500. */
  readonly pauseMs?: number;
  /** Interval between checks of the current release. Default 250. */
  readonly checkMs?: number;
  /** Time for an agent to end before it is killed. Default 20,000. */
  readonly stopMs?: number;
}

/** Status of a program that cannot be started, as in shells. */
const notStarted = 127;
/** Limit of failed starts of a release in a row. */
const maxFailures = 3;
const maxPauseFactor = 16;

/** The fallback if the current release does not start. */
interface Standing {
  /** The last release that started well; undefined: none has, so there are no workers. */
  proven: Release | undefined;
  /**
   * Publication time, in Unix milliseconds, of the release that fails to start: it is tried again when it is published
   * again.
   */
  givenUpMs: number | undefined;
  failures: number;
}

/**
 * Runs the agent of the current release until it is asked to end. A release that does not start is abandoned, and the
 * previous one continues. Resolves with the agent's exit status (128 plus the signal's number if a signal ended it)
 * when it is asked to end, and when no release starts: then Kubernetes reports the failure. The container ends with
 * this process, and the sessions end with the container. So while a worker of any agent lives, the agent is restarted,
 * however often it has failed.
 */
export async function keepRunning(options: KeepOptions): Promise<number> {
  const { signal, releases, log, goodStartMs = 10_000, pauseMs = 500, checkMs = 250 } = options;
  const standing: Standing = { proven: undefined, givenUpMs: undefined, failures: 0 };
  releases.running = undefined;
  try {
    for (;;) {
      const release = choose(options, standing);
      if (release === undefined) {
        await pause(checkMs, signal);
        if (signal.aborted) return 0;
        continue;
      }
      releases.prune([release.id, releases.current?.id ?? "", standing.proven?.id ?? ""], isUsedByProcess);
      const startedMs = performance.now();
      const status = await runOnce(release, standing, options);
      releases.running = undefined;
      if (signal.aborted) return status;
      const ranMs = performance.now() - startedMs;
      if (choose(options, standing)?.id !== release.id) {
        log.info({ from: release.id, to: releases.current?.id }, "a different release is requested");
        standing.failures = 0;
        continue;
      }
      if (ranMs >= goodStartMs && status !== notStarted) standing.failures = 0;
      else standing.failures += 1;
      const { proven } = standing;
      const isLast = proven === undefined || (proven.id === release.id && standing.failures >= maxFailures);
      if (isLast && !releases.isInUse(isUsedByProcess)) return status;
      if (proven !== undefined && proven.id !== release.id && standing.failures >= maxFailures) {
        log.error(
          { release: release.id, status },
          "the release does not start: the previous one keeps running",
        );
        standing.givenUpMs = releases.current?.atMs;
        standing.failures = 0;
      }
      log.error({ status }, "the agent has ended, and is started again; its workers go on");
      const factor = Math.min(maxPauseFactor, 2 ** Math.max(0, standing.failures - 1));
      await pause(pauseMs * factor, signal);
      if (signal.aborted) return status;
    }
  } finally {
    releases.running = undefined;
  }
}

/** The release to run now; undefined: none. */
function choose({ releases, log }: KeepOptions, standing: Standing): Release | undefined {
  const { current } = releases;
  if (current === undefined) return undefined;
  if (current.atMs === standing.givenUpMs) return standing.proven;
  try {
    return releases.read(current.id);
  } catch (error) {
    // Sessions would end with this process, so it stays: the last good release keeps running.
    log.error({ err: error, release: current.id }, "the release cannot be read");
    standing.givenUpMs = current.atMs;
    return standing.proven;
  }
}

/**
 * Runs an agent until it exits, until it is asked to end, or until another release is to run. Resolves with its status.
 */
async function runOnce(release: Release, standing: Standing, options: KeepOptions): Promise<number> {
  const { releases, signal, log, goodStartMs = 10_000, checkMs = 250, stopMs = 20_000 } = options;
  const [program = "", ...args] = release.command;
  const ended = new AbortController();
  const startedMs = performance.now();
  const child: ChildProcess = spawn(program, args, {
    stdio: "inherit",
    env: { ...process.env, ...release.environment },
  });
  const status = new Promise<number>((resolve) => {
    child.on("error", (error) => {
      log.error({ err: error, release: release.id }, "the agent cannot be started");
      if (child.pid === undefined) resolve(notStarted);
    });
    child.on("exit", (code, ending) =>
      resolve(code ?? 128 + (ending === null ? 0 : constants.signals[ending])),
    );
  }).finally(() => ended.abort());
  const isStarted = child.pid !== undefined;
  if (isStarted) releases.running = release.id;
  const either = AbortSignal.any([signal, ended.signal]);
  while (!either.aborted) {
    if (isStarted && performance.now() - startedMs >= goodStartMs) standing.proven = release;
    if (choose(options, standing)?.id !== release.id) break;
    await pause(checkMs, either);
  }
  if (!ended.signal.aborted) {
    child.kill("SIGTERM");
    await pause(stopMs, ended.signal);
    if (!ended.signal.aborted) child.kill("SIGKILL");
  }
  return await status;
}

/** Whether a process has a file of a release as an argument: its program, or a driver that it loads. */
function isUsedByProcess(path: string): boolean {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .some((pid) => {
      try {
        return readFileSync(join("/proc", pid, "cmdline"), "utf8").includes(`${path}/`);
      } catch {
        return false; // The process has ended since the listing.
      }
    });
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined);
}
