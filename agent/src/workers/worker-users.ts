// SPDX-License-Identifier: Apache-2.0

/**
 * The users of workers. From an agent that is root, every worker gets a user id of its own from a range before it loads
 * its driver, and the workers of one claim share an id. NVIDIA's kernel module keeps the user that a process has when
 * it opens the driver, and uses it to decide which processes may use or duplicate each other's driver objects; a later
 * change of user does not count (docs/decisions/0022).
 */

import { readFileSync } from "node:fs";
import { millpondError, quote } from "@millpond/api";

/** User ids, both ends included. The group ids are the same. */
export interface UserRange {
  readonly first: number;
  readonly last: number;
}

const largestUser = 4_294_967_294;

/** Beyond all ranges that distributions use for people, services, containers and subordinate users. */
export const defaultRange: UserRange = { first: 1_900_000_000, last: 1_900_065_535 };

/** systemd's range of dynamic users: of the ids that exist in a container with user namespaces (0 to 65535), those that are free. */
const rangeOfNamespaces: UserRange = { first: 61_184, last: 65_519 };

/** One id for probes and watchers, and at least two for workers: one that serves and one that is warm. */
const leastUsers = 3;

/** @throws MILLPOND_E_INVALID */
export function parseUserRange(text: string): UserRange {
  const [, first = "", last = ""] = /^(\d{1,10})-(\d{1,10})$/.exec(text) ?? [];
  const range = { first: Number(first), last: Number(last) };
  if (
    last === "" ||
    range.first < 1 ||
    range.last > largestUser ||
    range.last - range.first + 1 < leastUsers
  ) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is not a range of at least ${leastUsers} user ids, such as ${formatRange(defaultRange)}`,
    );
  }
  return range;
}

export function formatRange({ first, last }: UserRange): string {
  return `${first}-${last}`;
}

/** Whether the processes of a user namespace can have all ids of a range. `map`: text of `/proc/self/uid_map` or `gid_map`. */
export function hasIds(map: string, { first, last }: UserRange): boolean {
  const mapped = map
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number))
    .map(([start = 0, , count = 0]) => ({ start, end: start + count }))
    .sort((a, b) => a.start - b.start);
  let next = first;
  for (const { start, end } of mapped) if (start <= next && end > next) next = end;
  return next > last;
}

/** Whether the processes of this user namespace can have all ids of a range as user and as group. */
export function existsHere(range: UserRange): boolean {
  return ["uid_map", "gid_map"].every((name) => hasIds(readFileSync(`/proc/self/${name}`, "utf8"), range));
}

/** The default range for workers; undefined: the agent's user namespace has none. */
export function chooseRange(exists: (range: UserRange) => boolean = existsHere): UserRange | undefined {
  return [defaultRange, rangeOfNamespaces].find(exists);
}

/** Hands out the ids of a range, except its first, which is for processes that serve no tenant. */
export class WorkerUsers {
  readonly #range: UserRange;
  #next: number;

  /** `start`: where the search for the first id begins, below the number of ids. */
  constructor(range: UserRange, start: number) {
    this.#range = range;
    this.#next = start;
  }

  /** The id of the processes that probe drivers and watch devices. */
  static ofWatchers({ first }: UserRange): number {
    return first;
  }

  get size(): number {
    return this.#range.last - this.#range.first;
  }

  /** Whether a worker may have this id. */
  has(user: number): boolean {
    return user > this.#range.first && user <= this.#range.last;
  }

  /**
   * Returns an id that is not in use, and avoids recently returned ids where it can, so that files that a process of
   * another claim may have left under an id age first.
   *
   * @throws MILLPOND_E_NO_WORKER when all ids are in use
   */
  take(inUse: ReadonlySet<number | undefined>): number {
    for (let tried = 0; tried < this.size; tried += 1) {
      const user = this.#range.first + 1 + ((this.#next + tried) % this.size);
      if (inUse.has(user)) continue;
      this.#next = (this.#next + tried + 1) % this.size;
      return user;
    }
    throw millpondError(
      "MILLPOND_E_NO_WORKER",
      `all ${this.size} user ids for workers, of ${formatRange(this.#range)}, are in use`,
      { remedy: "Give the agent a larger range: --worker-users FROM-TO." },
    );
  }
}
