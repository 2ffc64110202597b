// SPDX-License-Identifier: Apache-2.0

import { createHmac, randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  fstatSync,
  lchownSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { millpondError, serviceClassWords } from "@millpond/api";
import { makeFolders } from "@millpond/platform";
import { z } from "zod";
import { bootId } from "../process/process-identity.ts";
import { LockHeldError, openLockedDatabase } from "./run-lock.ts";
import { TenantImages } from "./tenant-images.ts";

/** Unix socket addresses hold 107 bytes and a terminating zero. */
const maxSocketPathBytes = 107;

const groupKeyBytes = 32;

const workerRecordSchema = z.object({
  process: z.object({ pid: z.int().positive(), startTime: z.string(), bootId: z.string() }),
  driver: z.string(),
  warmDevice: z.string(),
  // Workers of earlier releases listened on loopback.
  tcpHost: z.string().default("127.0.0.1"),
  /** Unix seconds. */
  startedAt: z.int().nonnegative(),
  /** User id of its process, as requested by the agent; null: the agent's own user, or the worker is of an earlier release. */
  user: z.int().nonnegative().nullable().default(null),
  session: z
    .object({
      session: z.string(),
      claim: z.string(),
      epoch: z.int().nonnegative(),
      // Sessions from before terms were introduced are older than any answer.
      term: z.int().nonnegative().default(0),
      order: z.int().nonnegative().default(0),
      issued: z.int().nonnegative(),
      startedAt: z.int().nonnegative(),
      // A controller cannot adopt a session that it does not know and that has no ticket.
      ticket: z.string().default(""),
      devices: z.array(
        z.object({
          uuid: z.string(),
          memoryBytes: z.int().nonnegative(),
          computePercent: z.number(),
          // Sessions from before service classes were introduced have hard shares.
          serviceClass: z.enum(serviceClassWords).default("guaranteed"),
        }),
      ),
    })
    .nullable(),
  client: z
    .object({
      transport: z.enum(["shm", "tcp"]),
      clientPid: z.int().nonnegative(),
      // Missing in the records of an earlier release.
      programPid: z.int().nonnegative().default(0),
      program: z.string(),
    })
    .nullable(),
});

/** The agent's record of a worker, for the next agent. */
export type WorkerRecord = z.infer<typeof workerRecordSchema>;
/** The session of a worker. `issued` and `startedAt` are Unix seconds, by the controller's clock and by ours. */
export type SessionRecord = NonNullable<WorkerRecord["session"]>;

/** A session that has ended, kept until the controller knows that. */
export interface EndedSession {
  readonly session: string;
  readonly claim: string;
  readonly epoch: number;
  /** Whether its client ever connected, as far as a running agent observed. */
  readonly hadClient: boolean;
}

/** The most ended sessions that are kept for the controller. */
const maxEndedSessions = 4096;

/** The files of one worker. */
export interface WorkerDirectory {
  readonly id: string;
  readonly path: string;
  readonly controlPath: string;
  /** The secret by which an agent authenticates to the worker; the same for every agent of the run directory. */
  readonly controlKey: string;
  readonly dataPath: string;
  readonly peersPath: string;
  readonly logPath: string;
  /** The agent's record of the worker for the next agent; outside of `path`, where the worker may write. */
  readonly recordPath: string;
  /** Directory of the code that the worker's driver has compiled. */
  readonly jitCachePath: string;
}

/**
 * The directory of the state that must outlive an agent: a directory for each worker, the used tickets, the highest term
 * seen, the highest epoch seen of each claim, the active time of each allocation, and the ended sessions that are not yet
 * reported to the controller. One agent at a time uses it: the open database is the lock.
 */
export class RunDirectory implements Disposable {
  readonly path: string;
  readonly #database: DatabaseSync;
  readonly #groupKey: Buffer;
  readonly #images: TenantImages;
  #term: number;
  #isOpenToWorkers = false;

  /** Directory of module images, with a folder for each tenant. */
  get imageCachePath(): string {
    return this.#images.path;
  }

  /** Directory of the sockets at which clients reach their workers. It holds nothing else, so containers may see it. */
  get socketsPath(): string {
    return join(this.path, "sockets");
  }

  /** Directory of the budgets that the sessions of an allocation share. Its name has the boot's id: a reboot resets them. */
  get claimsPath(): string {
    return join(this.path, "claims", bootId());
  }

  /**
   * Directory of the gates, by which the node's workers take turns on each device; a reboot makes them useless. Workers
   * open them before they drop the agent's right to open them. The number in the name is that of the files' layout:
   * workers of an earlier release keep the files that they have mapped.
   */
  get gatesPath(): string {
    return join(this.path, "gates", gatesName());
  }

  private constructor(path: string, database: DatabaseSync) {
    this.path = path;
    this.#database = database;
    this.#groupKey = readGroupKey(join(path, "group.key"));
    this.#images = new TenantImages(join(path, "images"));
    this.#term = Number(database.prepare("SELECT term FROM terms").get()?.["term"] ?? 0);
  }

  /**
   * Creates the directory where needed and locks it.
   *
   * @throws MILLPOND_E_INVALID, MILLPOND_E_STATE_LOCKED
   */
  static open(path: string): RunDirectory {
    const absolute = resolve(path);
    const longest = join(absolute, "workers", "w-00000000", "control.sock");
    if (Buffer.byteLength(longest) > maxSocketPathBytes) {
      const room = maxSocketPathBytes - (Buffer.byteLength(longest) - Buffer.byteLength(absolute));
      throw millpondError(
        "MILLPOND_E_INVALID",
        `the run directory ${absolute} has too long a path for Unix sockets: at most ${room} bytes fit`,
      );
    }
    makeFolders(absolute, 0o755);
    makeFolders(join(absolute, "workers"), 0o755);
    makeFolders(join(absolute, "sockets"), 0o711);
    makeFolders(join(absolute, "records"), 0o700);
    try {
      const run = new RunDirectory(
        absolute,
        openLockedDatabase(
          join(absolute, "agent.db"),
          `CREATE TABLE IF NOT EXISTS used_tickets (session TEXT PRIMARY KEY, expires INTEGER NOT NULL) STRICT;
           CREATE TABLE IF NOT EXISTS epochs (
             claim TEXT PRIMARY KEY, epoch INTEGER NOT NULL, seen INTEGER NOT NULL) STRICT;
           CREATE TABLE IF NOT EXISTS ended_sessions (
             number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, claim TEXT NOT NULL,
             epoch INTEGER NOT NULL, had_client INTEGER NOT NULL) STRICT;
           CREATE TABLE IF NOT EXISTS activity (epoch INTEGER PRIMARY KEY, active_ms INTEGER NOT NULL) STRICT;
           CREATE TABLE IF NOT EXISTS controller (id TEXT NOT NULL) STRICT;
           CREATE TABLE IF NOT EXISTS terms (term INTEGER NOT NULL) STRICT`,
        ),
      );
      prepareOfThisBoot(join(absolute, "gates"), gatesName());
      prepareOfThisBoot(join(absolute, "claims"), bootId());
      return run;
    } catch (cause) {
      if (!(cause instanceof LockHeldError)) throw cause;
      throw millpondError("MILLPOND_E_STATE_LOCKED", `another agent uses the run directory ${absolute}`, {
        remedy: "Stop it, or give this one another --run directory.",
        cause,
      });
    }
  }

  /** Lets workers that run as other users reach what they share. */
  openToWorkers(): void {
    this.#isOpenToWorkers = true;
    // Without the right to list a folder, a process finds a claim's folder only if it knows the name, as the claim's
    // workers do.
    for (const folder of [join(this.path, "claims"), this.claimsPath]) chmodSync(folder, 0o711);
    this.#images.openToWorkers();
  }

  [Symbol.dispose](): void {
    this.#database.close();
  }

  /** Whether the stored state belongs to this controller. */
  isOfPool(controller: string): boolean {
    return this.#database.prepare("SELECT id FROM controller").get()?.["id"] === controller;
  }

  /**
   * Ties the stored state to one controller, and clears the state of any other: epochs of another pool mean nothing in
   * this one.
   */
  enterPool(controller: string): void {
    if (this.isOfPool(controller)) return;
    this.#database.exec(
      `BEGIN; DELETE FROM controller; DELETE FROM terms; DELETE FROM used_tickets; DELETE FROM epochs;
       DELETE FROM ended_sessions; DELETE FROM activity`,
    );
    this.#database.prepare("INSERT INTO controller (id) VALUES (?)").run(controller);
    this.#database.exec("COMMIT");
    this.#term = 0;
  }

  /** The highest term of a controller that this agent has obeyed; 0: none. */
  get term(): number {
    return this.#term;
  }

  /** Raises the term; a lower one changes nothing. */
  raiseTerm(term: number): void {
    if (term > this.#term) {
      this.#database.exec("BEGIN; DELETE FROM terms");
      this.#database.prepare("INSERT INTO terms (term) VALUES (?)").run(term);
      this.#database.exec("COMMIT");
      this.#term = term;
    }
  }

  /** Marks a ticket as used. Returns false when it was used before. */
  useTicket(session: string, expiresSeconds: number): boolean {
    const inserted = this.#database
      .prepare("INSERT INTO used_tickets (session, expires) VALUES (?, ?) ON CONFLICT DO NOTHING")
      .run(session, expiresSeconds);
    return inserted.changes === 1;
  }

  /** The highest epoch seen of a claim; -1: none. */
  epochOf(claim: string): number {
    const row = this.#database.prepare("SELECT epoch FROM epochs WHERE claim = ?").get(claim);
    return row === undefined ? -1 : Number(row["epoch"]);
  }

  /** Raises the epoch of a claim; a lower one changes nothing. */
  raiseEpoch(claim: string, epoch: number, nowSeconds: number): void {
    this.#database
      .prepare(
        `INSERT INTO epochs (claim, epoch, seen) VALUES (?, ?, ?)
         ON CONFLICT DO UPDATE SET epoch = max(epoch, excluded.epoch), seen = max(seen, excluded.seen)`,
      )
      .run(claim, epoch, nowSeconds);
  }

  /** Forgets tickets that expired before `beforeSeconds`, and epochs last seen before it of claims that are not in `keep`. */
  forget(beforeSeconds: number, keep: ReadonlySet<string>): void {
    this.#database.prepare("DELETE FROM used_tickets WHERE expires < ?").run(beforeSeconds);
    const drop = this.#database.prepare("DELETE FROM epochs WHERE claim = ?");
    for (const row of this.#database.prepare("SELECT claim FROM epochs WHERE seen < ?").all(beforeSeconds)) {
      const claim = String(row["claim"]);
      if (!keep.has(claim)) drop.run(claim);
    }
  }

  /** Keeps an ended session for the controller; drops the oldest one beyond `maxEndedSessions`. */
  addEndedSession({ session, claim, epoch, hadClient }: EndedSession): void {
    const { lastInsertRowid } = this.#database
      .prepare(
        `INSERT INTO ended_sessions (session, claim, epoch, had_client) VALUES (?, ?, ?, ?)
         ON CONFLICT (session) DO UPDATE SET had_client = max(had_client, excluded.had_client)`,
      )
      .run(session, claim, epoch, hadClient ? 1 : 0);
    this.#database
      .prepare("DELETE FROM ended_sessions WHERE number <= ?")
      .run(Number(lastInsertRowid) - maxEndedSessions);
  }

  /** The ended sessions that are kept, oldest first. */
  endedSessions(): EndedSession[] {
    const rows = this.#database.prepare("SELECT * FROM ended_sessions ORDER BY number").all();
    return rows.map((row) => ({
      session: String(row["session"]),
      claim: String(row["claim"]),
      epoch: Number(row["epoch"]),
      hadClient: row["had_client"] === 1,
    }));
  }

  /** Drops ended sessions that the controller has acknowledged. */
  forgetEndedSessions(sessions: readonly EndedSession[]): void {
    const drop = this.#database.prepare("DELETE FROM ended_sessions WHERE session = ?");
    for (const { session } of sessions) drop.run(session);
  }

  /** The stored active time of each allocation, as pairs of epoch and milliseconds. */
  activity(): (readonly [number, number])[] {
    const rows = this.#database.prepare("SELECT * FROM activity ORDER BY epoch").all();
    return rows.map((row) => [Number(row["epoch"]), Number(row["active_ms"])]);
  }

  /** Stores all of the totals or, where that fails, none. */
  keepActivity(totals: readonly (readonly [number, number])[]): void {
    this.#database
      .prepare("INSERT OR REPLACE INTO activity SELECT value ->> 0, value ->> 1 FROM json_each(?)")
      .run(JSON.stringify(totals));
  }

  forgetActivity(epochs: readonly number[]): void {
    this.#database
      .prepare("DELETE FROM activity WHERE epoch IN (SELECT value FROM json_each(?))")
      .run(JSON.stringify(epochs));
  }

  /** The secret that the sessions of an allocation share on this node; the same for every agent of the run directory. */
  groupOf(claim: string, epoch: number): string {
    return createHmac("sha256", this.#groupKey).update(`${claim} ${epoch}`).digest("hex");
  }

  /**
   * Secret of a tenant on this node, which its workers know and the workers of others do not; it is the same for every
   * agent. It is the name of the folder of the tenant's images, which is created if it is missing.
   */
  tenantOf(tenant: string): string {
    const name = createHmac("sha256", this.#groupKey).update(`tenant ${tenant}`).digest("hex");
    this.#images.open(name);
    return name;
  }

  /**
   * The directory of the budgets of an allocation; creates it where it is missing. `user`: the user of the allocation's
   * workers, if it is not the agent's. Workers of the allocation that have another user have mapped its files.
   */
  claimDirectory(claim: string, epoch: number, user: number | undefined): string {
    const path = join(this.claimsPath, this.allocationName(claim, epoch));
    makeFolders(path, 0o700);
    if (this.#isOpenToWorkers && user !== undefined) {
      lchownSync(path, user, user);
      for (const name of readdirSync(path)) lchownSync(join(path, name), user, user);
    }
    return path;
  }

  /** Removes the directories of all other allocations. */
  keepClaimDirectories(allocations: readonly { readonly claim: string; readonly epoch: number }[]): void {
    const kept = new Set(allocations.map(({ claim, epoch }) => this.allocationName(claim, epoch)));
    for (const name of readdirSync(this.claimsPath)) {
      if (!kept.has(name)) rmSync(join(this.claimsPath, name), { recursive: true, force: true });
    }
  }

  /**
   * Name of an allocation in the files and control groups of this node. A claim of another pool may have the same name and epoch,
   * but its sessions end before those of this pool's claim begin.
   */
  allocationName(claim: string, epoch: number): string {
    return this.groupOf(claim, epoch).slice(0, 32);
  }

  workerDirectory(id: string): WorkerDirectory {
    const path = join(this.path, "workers", id);
    // Workers of the previous release listen in the same directory as their other sockets.
    const before = join(path, "data.sock");
    return {
      id,
      path,
      controlPath: join(path, "control.sock"),
      controlKey: createHmac("sha256", this.#groupKey).update(`control ${id}`).digest("hex"),
      dataPath: existsSync(before) ? before : join(this.socketsPath, id, "data.sock"),
      peersPath: join(path, "peers.sock"),
      logPath: join(path, "worker.log"),
      recordPath: join(this.path, "records", `${id}.json`),
      jitCachePath: join(path, "jit"),
    };
  }

  /** Creates the files of a worker. `user`: the worker's user, if it is not the agent's. */
  createWorkerDirectory(id: string, user: number | undefined): WorkerDirectory {
    const directory = this.workerDirectory(id);
    mkdirSync(directory.path, { mode: 0o755 });
    // Clients of other users must reach data.sock; clients in other containers must reach nothing else.
    const door = dirname(directory.dataPath);
    mkdirSync(door, { mode: 0o755 });
    mkdirSync(directory.jitCachePath, { mode: 0o700 });
    if (user !== undefined) {
      chownSync(directory.jitCachePath, user, user);
      // The worker creates its sockets there. Files of other processes, such as its log, it can neither replace nor
      // remove.
      for (const folder of [directory.path, door]) {
        chownSync(folder, 0, user);
        chmodSync(folder, 0o1771);
      }
    }
    return directory;
  }

  workerDirectories(): WorkerDirectory[] {
    return readdirSync(join(this.path, "workers"), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => this.workerDirectory(entry.name));
  }
}

/** Creates the folder of this boot of the machine, and removes those of other boots. */
function prepareOfThisBoot(path: string, kept: string): void {
  makeFolders(join(path, kept), 0o700);
  for (const name of readdirSync(path)) {
    if (name !== kept) rmSync(join(path, name), { recursive: true, force: true });
  }
}

function gatesName(): string {
  return `${bootId()}-4`;
}

/** Returns the node's key, which its first agent creates. */
function readGroupKey(path: string): Buffer {
  if (existsSync(path)) {
    const known = readFileSync(path);
    // A truncated file is not used as a key: open sessions keep the old key, and later ones get the new one.
    if (known.length === groupKeyBytes) return known;
  }
  const key = randomBytes(groupKeyBytes);
  const draft = `${path}.new`;
  writeFileSync(draft, key, { mode: 0o600 });
  renameSync(draft, path);
  return key;
}

/** Writes the record atomically. */
export function writeWorkerRecord(directory: WorkerDirectory, record: WorkerRecord): void {
  const draft = `${directory.recordPath}.new`;
  writeFileSync(draft, `${JSON.stringify(record)}\n`, { mode: 0o600 });
  renameSync(draft, directory.recordPath);
}

/** The record; `undefined` if there is none or it cannot be parsed. */
export function readWorkerRecord(directory: WorkerDirectory): WorkerRecord | undefined {
  try {
    // Agents of the previous release kept the record beside the worker's sockets, where the worker could modify it.
    const before = join(directory.path, "worker.json");
    const path = existsSync(directory.recordPath) ? directory.recordPath : before;
    return workerRecordSchema.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch {
    return undefined;
  }
}

/** The last lines of a worker's log, for the message about its end; empty when it wrote nothing. */
export function readWorkerLogTail(directory: WorkerDirectory): string {
  try {
    const file = openSync(directory.logPath, "r");
    try {
      const { size } = fstatSync(file);
      const tail = Buffer.alloc(Math.min(size, 4096));
      readSync(file, tail, 0, tail.length, size - tail.length);
      return tail.toString("utf8").trimEnd().split("\n").slice(-5).join("\n");
    } finally {
      closeSync(file);
    }
  } catch {
    return "";
  }
}

export function removeWorkerDirectory(directory: WorkerDirectory): void {
  const door = dirname(directory.dataPath);
  if (door !== directory.path) rmSync(door, { recursive: true, force: true });
  rmSync(directory.path, { recursive: true, force: true });
  rmSync(directory.recordPath, { force: true });
}
