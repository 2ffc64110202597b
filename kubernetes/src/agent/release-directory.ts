// SPDX-License-Identifier: Apache-2.0

// The releases of Millpond on a node: copies of the files of images, outside of any container. The container that holds the
// workers runs its agent from there, so that an upgrade replaces the agent and leaves the container, and so the sessions, alone.
//
//   current -> 6f1c…          what the agent is to run
//   6f1c…/start.json          how it is started
//   running                   what runs; written by the container of the workers

import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join, relative } from "node:path";
import { millpondError, quote } from "@millpond/api";

/** The command that starts an agent. */
export interface Start {
  /** Program and arguments. */
  readonly command: readonly string[];
  /** Variables in addition to those of the container. */
  readonly environment: Readonly<Record<string, string>>;
}

export interface Release extends Start {
  /** 16 hexadecimal digits of the hash of its content. */
  readonly id: string;
}

export interface Publication {
  readonly id: string;
  /** Unix milliseconds. */
  readonly atMs: number;
}

const idPattern = /^[0-9a-f]{16}$/;
const draftPrefix = ".draft-";

export class ReleaseDirectory {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Copies a directory, and makes the copy the release to run.
   *
   * @param start paths of files in `source` become those of the copy
   * @returns id of the release; the same files and start make the same one
   */
  publish(source: string, start: Start): string {
    mkdirSync(this.#path, { recursive: true, mode: 0o755 });
    const id = digest(source, start);
    const target = join(this.#path, id);
    if (!existsSync(target)) {
      const draft = mkdtempSync(join(this.#path, draftPrefix));
      try {
        const copy = join(draft, "copy");
        cpSync(source, copy, { recursive: true, verbatimSymlinks: true });
        const command = start.command.map((argument) => argument.replaceAll(`${source}/`, `${target}/`));
        writeFileSync(join(copy, "start.json"), JSON.stringify({ ...start, command }));
        renameSync(copy, target);
      } finally {
        rmSync(draft, { recursive: true, force: true });
      }
    }
    this.#writeLink("current", id);
    return id;
  }

  /** The release to run; undefined: none is published. */
  get current(): Publication | undefined {
    const id = this.#readLink("current");
    if (id === undefined) return undefined;
    const atMs = lstatSync(join(this.#path, "current"), { throwIfNoEntry: false })?.mtimeMs ?? 0;
    return { id, atMs };
  }

  /** @throws MILLPOND_E_INVALID if the release is incomplete */
  read(id: string): Release {
    const path = join(this.#path, id, "start.json");
    const invalid = (why: string): Error =>
      millpondError("MILLPOND_E_INVALID", `${quote(path)} does not say how an agent starts: ${why}`, {
        remedy: "Delete the pod of millpond-agent on this node; the next one writes it again.",
      });
    if (!idPattern.test(id)) throw invalid("its directory has no name of a release");
    try {
      const { command, environment } = JSON.parse(readFileSync(path, "utf8")) as Partial<Start>;
      if (!Array.isArray(command) || command.length === 0) throw new Error("there is no command");
      return { id, command, environment: environment ?? {} };
    } catch (error) {
      throw invalid(error instanceof Error ? error.message : "");
    }
  }

  /** Id of the release whose agent runs; undefined: none does. */
  get running(): string | undefined {
    return this.#readLink("running");
  }

  set running(id: string | undefined) {
    if (id === undefined) rmSync(join(this.#path, "running"), { force: true });
    else this.#writeLink("running", id);
  }

  /** Removes all releases except those to keep and those that a process uses, according to `isUsed`. */
  prune(kept: readonly string[], isUsed: (path: string) => boolean): void {
    for (const name of this.#names()) {
      const path = join(this.#path, name);
      if (idPattern.test(name) && !kept.includes(name) && !isUsed(path)) {
        rmSync(path, { recursive: true, force: true });
      }
    }
  }

  /** Whether a process uses a release, according to `isUsed`. */
  isInUse(isUsed: (path: string) => boolean): boolean {
    return this.#names().some((name) => idPattern.test(name) && isUsed(join(this.#path, name)));
  }

  /** Removes the whole directory. */
  remove(): void {
    for (const name of this.#names()) {
      const isOurs = idPattern.test(name) || name.startsWith(draftPrefix) || /^(current|running)/.test(name);
      if (isOurs) rmSync(join(this.#path, name), { recursive: true, force: true });
    }
  }

  #names(): string[] {
    return existsSync(this.#path) ? readdirSync(this.#path) : [];
  }

  #readLink(name: string): string | undefined {
    try {
      return readlinkSync(join(this.#path, name));
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
      throw error;
    }
  }

  /** Replaces a link atomically: a reader sees either the old or the new one. */
  #writeLink(name: string, id: string): void {
    const draft = join(this.#path, `${name}.${process.pid}`);
    rmSync(draft, { force: true });
    symlinkSync(id, draft);
    renameSync(draft, join(this.#path, name));
  }
}

function digest(source: string, start: Start): string {
  const hash = createHash("sha256").update(JSON.stringify(start));
  const entries = readdirSync(source, { recursive: true, withFileTypes: true })
    .map((entry) => ({ entry, path: join(entry.parentPath, entry.name) }))
    .sort((a, b) => (a.path < b.path ? -1 : 1));
  for (const { entry, path } of entries) {
    hash.update(`${relative(source, path)}\0`);
    if (entry.isSymbolicLink()) hash.update(readlinkSync(path));
    else if (entry.isFile()) hash.update(readFileSync(path));
  }
  return hash.digest("hex").slice(0, 16);
}
