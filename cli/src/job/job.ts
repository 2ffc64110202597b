// SPDX-License-Identifier: Apache-2.0

// Programs that run without a terminal: `millpond run --detach`. Each has a directory on the machine on which it was started,
// with its description (`job.json`), and its output together with Millpond's messages (`log`).

import { randomBytes } from "node:crypto";
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { identifyProcess, isProcessAlive, type ProcessIdentity } from "@millpond/agent";
import { isName, millpondError, quote } from "@millpond/api";
import { makeFolders } from "@millpond/platform";

/** The record of a job, as in `job.json`. Times are Unix seconds. */
export interface JobRecord {
  /** Also the name of its claim or, for an array, the prefix of its claims' names. */
  readonly name: string;
  readonly command: readonly string[];
  readonly directory: string;
  /** The millpond process that waits for vGPUs and runs the program. */
  readonly runner: ProcessIdentity;
  readonly startedAt: number;
  /** When its program started; null: it waits. */
  readonly beganAt: number | null;
  readonly endedAt: number | null;
  /** Exit status, as of `millpond run`; null: it has not ended. */
  readonly status: number | null;
}

export type JobState = "waiting" | "running" | "ended" | "lost";

/** Variable that holds the job's directory for its runner. Programs do not get it. */
export const jobVariable = "MILLPOND_JOB";
/** File descriptor on which the runner reports to the command that started it that its claim exists. */
export const readyDescriptor = 3;
export const readyWord = "ready\n";

/** Number of ended jobs that are kept: the newest. */
const keptJobs = 100;

/** Size in bytes of a record without its command and directory. */
const recordBytes = 1024;

/** @param stateDirectory the user's state directory: `~/.local/state/millpond` */
export function jobsDirectory(stateDirectory: string): string {
  return join(stateDirectory, "jobs");
}

/** Returns a name that no job has, for a job that was given none. */
export function newJobName(): string {
  return `job-${randomBytes(6).toString("hex")}`;
}

export function logOf(jobs: string, name: string): string {
  return join(jobs, name, "log");
}

/**
 * Creates the directory of a job, and removes those of the oldest ended jobs.
 *
 * @returns its directory
 * @throws MILLPOND_E_ALREADY_EXISTS for a job of that name that has not ended, MILLPOND_E_INVALID when it cannot be written
 */
export function makeJob(jobs: string, name: string, command: readonly string[]): string {
  const directory = join(jobs, name);
  const before = readJob(jobs, name);
  if (before !== undefined && jobState(before) !== "ended" && jobState(before) !== "lost") {
    throw millpondError("MILLPOND_E_ALREADY_EXISTS", `the job ${name} already exists`, {
      remedy: "Choose another name, or end it with `millpond release`.",
    });
  }
  try {
    prune(jobs);
    rmSync(directory, { recursive: true, force: true });
    makeFolders(directory, 0o700);
    // The record is written in place, because the disk may be full by then.
    writeFileSync(
      join(directory, "job.json"),
      " ".repeat(recordBytes + Buffer.byteLength(JSON.stringify([command, process.cwd()]))),
      {
        mode: 0o600,
      },
    );
  } catch (cause) {
    throw unwritable(directory, cause);
  }
  return directory;
}

/** @throws MILLPOND_E_INVALID */
export function openLog(jobs: string, name: string): number {
  const path = logOf(jobs, name);
  try {
    return openSync(path, "a", 0o600);
  } catch (cause) {
    throw unwritable(path, cause);
  }
}

function unwritable(path: string, cause: unknown) {
  const why = cause instanceof Error ? cause.message : String(cause);
  return millpondError("MILLPOND_E_INVALID", `${quote(path)} cannot be written: ${why}`, {
    remedy:
      "Free space on its disk, or name another folder in XDG_STATE_HOME; without --detach no file is needed.",
    cause,
  });
}

function prune(jobs: string): void {
  const ended = listJobs(jobs).filter((job) => jobState(job) === "ended" || jobState(job) === "lost");
  ended.sort((one, other) => other.startedAt - one.startedAt);
  for (const { name } of ended.slice(keptJobs)) rmSync(join(jobs, name), { recursive: true, force: true });
}

export function jobState({ endedAt, beganAt, runner }: JobRecord): JobState {
  if (endedAt !== null) return "ended";
  if (!isProcessAlive(runner)) return "lost";
  return beganAt === null ? "waiting" : "running";
}

/** All jobs of the user on this machine, the oldest first. */
export function listJobs(jobs: string): JobRecord[] {
  return namesIn(jobs)
    .map((name) => readJob(jobs, name))
    .filter((job) => job !== undefined)
    .sort((one, other) => one.startedAt - other.startedAt);
}

function namesIn(jobs: string): string[] {
  try {
    return readdirSync(jobs).filter(isName);
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** @throws MILLPOND_E_NOT_FOUND */
export function requireJob(jobs: string, name: string): JobRecord {
  const job = readJob(jobs, name);
  if (job !== undefined) return job;
  const known = listJobs(jobs).map((each) => each.name);
  throw millpondError(
    "MILLPOND_E_NOT_FOUND",
    `there is no job ${quote(name)} on this machine${known.length === 0 ? "" : `; the newest are ${known.slice(-3).join(", ")}`}`,
    { remedy: "List those that `millpond run --detach` has started here with `millpond jobs`." },
  );
}

/** Undefined if there is none, or its runner has not started. */
export function readJob(jobs: string, name: string): JobRecord | undefined {
  if (!isName(name)) return undefined;
  const path = join(jobs, name, "job.json");
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
  // Its runner has not written it yet.
  if (text.trim() === "") return undefined;
  const record = parseRecord(text);
  if (record?.name === name) return record;
  throw millpondError("MILLPOND_E_STATE_BROKEN", `${quote(path)} is not the record of a job`, {
    remedy: "Remove its folder.",
  });
}

function parseRecord(text: string): JobRecord | undefined {
  try {
    const record = JSON.parse(text) as Partial<JobRecord> | null;
    const isWhole =
      typeof record?.name === "string" &&
      Array.isArray(record.command) &&
      record.command.every((word) => typeof word === "string") &&
      typeof record.directory === "string" &&
      typeof record.runner?.pid === "number" &&
      typeof record.startedAt === "number" &&
      [record.beganAt, record.endedAt, record.status].every(
        (value) => value === null || typeof value === "number",
      );
    return isWhole ? (record as JobRecord) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR");
}

/** The runner's side of a job: writes its record. */
export class JobRunner {
  readonly #directory: string;
  #record: JobRecord;
  #isAnnounced = false;

  private constructor(directory: string, record: JobRecord) {
    this.#directory = directory;
    this.#record = record;
  }

  /** Returns the job of this process when `millpond run --detach` has started it; removes the variable that names it. */
  static ofProcess(environment: NodeJS.ProcessEnv, command: readonly string[]): JobRunner | undefined {
    const directory = environment[jobVariable];
    delete environment[jobVariable];
    if (directory === undefined || directory === "") return undefined;
    const runner = identifyProcess(process.pid);
    if (runner === undefined) throw new Error("this process is not in /proc");
    const job = new JobRunner(directory, {
      name: directory.slice(directory.lastIndexOf("/") + 1),
      command,
      directory: process.cwd(),
      runner,
      startedAt: now(),
      beganAt: null,
      endedAt: null,
      status: null,
    });
    job.#write();
    return job;
  }

  get name(): string {
    return this.#record.name;
  }

  /** Its claim exists, so the command that started it may end. */
  announce(): void {
    if (this.#isAnnounced) return;
    this.#isAnnounced = true;
    try {
      writeSync(readyDescriptor, readyWord);
      closeSync(readyDescriptor);
    } catch (error) {
      // That command has already ended; the job continues.
      if (!(error instanceof Error && "code" in error && (error.code === "EPIPE" || error.code === "EBADF")))
        throw error;
    }
  }

  began(): void {
    if (this.#record.beganAt !== null) return;
    this.#record = { ...this.#record, beganAt: now() };
    this.#write();
  }

  ended(status: number): void {
    this.#record = { ...this.#record, endedAt: now(), status };
    this.#write();
  }

  /** Writes the record. A failure does not end the job; its log reports it. */
  #write(): void {
    const path = join(this.#directory, "job.json");
    const text = `${JSON.stringify(this.#record)}\n`;
    try {
      writeFileSync(`${path}.new`, text, { mode: 0o600 });
      renameSync(`${path}.new`, path);
    } catch (error) {
      try {
        // On a full disk, the file has spare room for the final numbers, which makeJob reserved.
        writeFileSync(path, text.padEnd(statSync(path).size), { flag: "r+" });
      } catch {
        process.stderr.write(`millpond: the record of the job cannot be written: ${errorText(error)}\n`);
      }
    }
  }
}

function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function now(): number {
  return Math.floor(Date.now() / 1000);
}
