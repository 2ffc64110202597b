// SPDX-License-Identifier: Apache-2.0

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import {
  endOrphanedWorkers,
  endProcess,
  identifyProcess,
  isProcessAlive,
  LockHeldError,
  openLockedDatabase,
  type ProcessIdentity,
} from "@millpond/agent";
import { millpondError } from "@millpond/api";
import { authorityPath, makeFolders } from "@millpond/platform";
import { poolKeyFile, tokenFileName } from "@millpond/controller";

/** How long processes of an earlier pool may take to end by themselves. */
const graceMs = 3000;

/** The record that `up` writes about itself, for its successor and for display. */
interface UpRecord {
  readonly pid: number;
  /** Identity of the same process; absent in records of earlier releases. */
  readonly self?: ProcessIdentity;
  /** Empty until the controller serves. */
  readonly controller: string;
  /** The processes that it started. */
  readonly services: readonly ProcessIdentity[];
}

/** The directory of a pool on this machine, held by one `millpond up` at a time. */
export class PoolDirectory implements Disposable {
  readonly path: string;
  readonly #lock: DatabaseSync;

  private constructor(path: string, lock: DatabaseSync) {
    this.path = path;
    this.#lock = lock;
  }

  /**
   * Acquires the directory, creating it if needed.
   *
   * @throws MILLPOND_E_STATE_LOCKED when a pool runs on it, MILLPOND_E_STATE_BROKEN when it cannot be used
   */
  static open(path: string): PoolDirectory {
    const absolute = resolve(path);
    try {
      makeFolders(absolute, 0o700);
      const lock = openLockedDatabase(join(absolute, "up.db"), "CREATE TABLE IF NOT EXISTS up (id INTEGER)");
      return new PoolDirectory(absolute, lock);
    } catch (cause) {
      if (cause instanceof LockHeldError) {
        const running = readRecord(absolute);
        const which =
          running === undefined
            ? ""
            : ` (process ${running.pid}${running.controller === "" ? "" : `, controller at ${running.controller}`})`;
        throw millpondError("MILLPOND_E_STATE_LOCKED", `a pool runs on ${absolute} already${which}`, {
          remedy: "Use that one, stop it with Ctrl-C, or give this one another --state directory.",
        });
      }
      const why = cause instanceof Error ? cause.message : String(cause);
      throw millpondError(
        "MILLPOND_E_STATE_BROKEN",
        `the state directory ${absolute} cannot be used: ${why}`,
        {
          cause,
        },
      );
    }
  }

  /** Run directories of a pool's nodes; empty if no pool has run. */
  static runDirectories(path: string): readonly string[] {
    const nodes = join(resolve(path), "nodes");
    if (!existsSync(nodes)) return [];
    return readdirSync(nodes).map((name) => join(nodes, name, "run"));
  }

  get controllerPath(): string {
    return join(this.path, "controller");
  }

  tokenPath(role: "user" | "agent"): string {
    return join(this.controllerPath, tokenFileName(role));
  }

  /** Certificate of the authority that the controller makes when it listens beyond loopback. */
  get authorityPath(): string {
    return authorityPath(this.controllerPath);
  }

  nodePath(name: string): string {
    return join(this.path, "nodes", name);
  }

  logPath(name: string): string {
    return join(this.path, "logs", `${name}.log`);
  }

  /**
   * Ends the processes left by an `up` that was killed, and forgets its pool. Its sessions have ended with it, so nothing is
   * worth keeping except the tokens and the authority, which users may have stored, and the pool key, which a database may
   * need.
   */
  async recover(): Promise<void> {
    const left = readRecord(this.path)?.services ?? [];
    await Promise.all(left.map((service) => endProcess(service, graceMs)));
    makeFolders(join(this.path, "nodes"), 0o755);
    for (const name of readdirSync(join(this.path, "nodes"))) {
      const run = join(this.nodePath(name), "run");
      await endOrphanedWorkers(run, graceMs);
      rmSync(this.nodePath(name), { recursive: true });
    }
    makeFolders(this.controllerPath, 0o700);
    const kept = new Set([tokenFileName("user"), tokenFileName("agent"), "tls", poolKeyFile]);
    for (const file of readdirSync(this.controllerPath)) {
      if (!kept.has(file)) rmSync(join(this.controllerPath, file), { recursive: true });
    }
    rmSync(join(this.path, "logs"), { recursive: true, force: true });
    mkdirSync(join(this.path, "logs"), { mode: 0o700 });
    this.record("", []);
  }

  makeNodeDirectory(name: string): string {
    makeFolders(this.nodePath(name), 0o755);
    return this.nodePath(name);
  }

  record(controller: string, services: readonly ProcessIdentity[]): void {
    const self = identifyProcess(process.pid);
    const record: UpRecord = {
      pid: process.pid,
      ...(self === undefined ? {} : { self }),
      controller,
      services,
    };
    writeFileSync(join(this.path, "up.json"), `${JSON.stringify(record)}\n`, { mode: 0o600 });
  }

  [Symbol.dispose](): void {
    rmSync(join(this.path, "up.json"), { force: true });
    this.#lock.close();
  }
}

/** The file to which `up` writes its output when it has no terminal. */
export function detachedLogPath(path: string): string {
  return join(resolve(path), "up.log");
}

/** The process of the `up` that runs on a directory; undefined: none. */
export function runningPool(path: string): ProcessIdentity | undefined {
  const self = readRecord(path)?.self;
  return self !== undefined && isProcessAlive(self) ? self : undefined;
}

function readRecord(path: string): UpRecord | undefined {
  try {
    return JSON.parse(readFileSync(join(path, "up.json"), "utf8")) as UpRecord;
  } catch {
    return undefined; // No record was written, or only a part of it: its processes are found by other means.
  }
}
