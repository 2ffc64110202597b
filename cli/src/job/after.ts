// SPDX-License-Identifier: Apache-2.0
// Jobs and claims whose end a program waits for before it creates its own claim: `millpond run --after`.

import { setTimeout as delay } from "node:timers/promises";
import { ClaimState, errorCodeOf, isName, millpondError, quote } from "@millpond/api";
import { exitStatus } from "../command-table/command-table.ts";
import { type Connection, isSilent } from "../connection/connection.ts";
import { jobState, readJob } from "./job.ts";

/** `any`: the predecessor has ended; `ok`: it has ended with exit status 0. */
type Condition = "any" | "ok";

/** A job of this machine, or a claim of the pool, that must end first. */
export interface Predecessor {
  readonly name: string;
  readonly condition: Condition;
}

/** How often the record of a job is read, on this machine. */
const jobPollMs = 200;
/** How often the pool is asked about a claim. A long poll would renew the lease of a claim that belongs to others. */
const claimPollMs = 2000;
const askTimeoutMs = 10_000;

/**
 * Reads `prepare:ok,sweep`.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parsePredecessors(texts: readonly string[]): readonly Predecessor[] {
  return texts.map((text) => {
    const [name = "", condition = "any", ...others] = text.split(":");
    if (isName(name) && others.length === 0 && (condition === "any" || condition === "ok"))
      return { name, condition };
    throw millpondError(
      "MILLPOND_E_INVALID",
      `--after ${quote(text)} is neither NAME, NAME:any nor NAME:ok`,
      {
        remedy: "Name a job or a claim; with `:ok` it must end with the exit status 0.",
      },
    );
  });
}

export interface AfterOptions {
  /** Folder of the jobs of this user. */
  readonly jobs: string;
  readonly connection: Connection;
  readonly signal: AbortSignal;
  readonly onWaiting: (why: string) => void;
}

/**
 * Checks that each predecessor can be waited for.
 *
 * @throws MILLPOND_E_NOT_FOUND when there is neither a job nor a claim of that name, MILLPOND_E_INVALID for `ok` of a claim,
 * whose exit status the pool does not know
 */
export async function checkPredecessors(
  predecessors: readonly Predecessor[],
  { jobs, connection, signal }: AfterOptions,
): Promise<void> {
  for (const { name, condition } of predecessors) {
    if (readJob(jobs, name) !== undefined) continue;
    try {
      await connection.claims.getClaim({ name }, { signal });
    } catch (error) {
      if (errorCodeOf(error) !== "MILLPOND_E_NOT_FOUND") throw error;
      throw millpondError(
        "MILLPOND_E_NOT_FOUND",
        `--after ${name}: there is neither a job of this name on this machine nor a claim`,
        { remedy: "List them with `millpond jobs` and `millpond get claims -a`.", cause: error },
      );
    }
    if (condition === "ok") {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `--after ${name}:ok: ${name} is a claim, not a job of this machine, so its exit status is not known here`,
        {
          remedy: `Start ${name} here with \`millpond run --detach\`, or use --after ${name}, which waits for any end.`,
        },
      );
    }
  }
}

/**
 * Waits for the end of all predecessors.
 *
 * @returns undefined when the program may start; otherwise the reason why it may not, and the exit status
 */
export async function waitForPredecessors(
  predecessors: readonly Predecessor[],
  options: AfterOptions,
): Promise<{ readonly why: string; readonly status: number } | undefined> {
  for (const { name, condition } of predecessors) {
    if (readJob(options.jobs, name) === undefined) {
      await waitForClaim(name, options);
      continue;
    }
    const status = await waitForJob(name, options);
    if (condition === "any" || status === 0) continue;
    const end = status === undefined ? "is lost" : `has ended with ${status}`;
    return {
      why: `the job ${name} ${end}, so the program is not started`,
      status: status ?? exitStatus.failed,
    };
  }
  return undefined;
}

/** @returns The exit status; undefined if its runner was killed. */
async function waitForJob(
  name: string,
  { jobs, signal, onWaiting }: AfterOptions,
): Promise<number | undefined> {
  for (;;) {
    signal.throwIfAborted();
    const job = readJob(jobs, name);
    const state = job === undefined ? "lost" : jobState(job);
    if (state === "ended" || state === "lost") return job?.status ?? undefined;
    onWaiting(`waiting for the end of the job ${name}`);
    await delay(jobPollMs, undefined, { signal });
  }
}

async function waitForClaim(name: string, { connection, signal, onWaiting }: AfterOptions): Promise<void> {
  for (;;) {
    try {
      const { claim } = await connection.claims.getClaim({ name }, { signal, timeoutMs: askTimeoutMs });
      if (claim?.state === ClaimState.RELEASED || claim?.state === ClaimState.FAILED) return;
      onWaiting(`waiting for the end of the claim ${name}`);
    } catch (error) {
      signal.throwIfAborted();
      // The record of an ended claim is removed after a while.
      if (errorCodeOf(error) === "MILLPOND_E_NOT_FOUND") return;
      if (!isSilent(error)) throw error;
      onWaiting(`waiting for the controller at ${connection.controller}, which does not answer`);
    }
    await delay(claimPollMs, undefined, { signal });
  }
}
