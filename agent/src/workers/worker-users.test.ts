// SPDX-License-Identifier: Apache-2.0

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { chooseWorkerUsers } from "./worker-containment.ts";
import {
  chooseRange,
  defaultRange,
  existsHere,
  hasIds,
  parseUserRange,
  WorkerUsers,
} from "./worker-users.ts";

const whole = "         0          0 4294967295\n";
const ofContainer = "         0     231072      65536\n";

test("a range of user ids is read, and anything else is refused", () => {
  expect(parseUserRange("70000-70099")).toEqual({ first: 70_000, last: 70_099 });
  for (const text of ["", "70000", "70099-70000", "70000-70001", "0-100", "1-4294967295", "a-b", "1-9 "])
    expect(() => parseUserRange(text), text).toThrow(/is not a range of at least 3 user ids/);
});

test("ids exist in a user namespace that maps all of them", () => {
  expect(hasIds(whole, defaultRange)).toBe(true);
  expect(hasIds(ofContainer, defaultRange)).toBe(false);
  expect(hasIds(ofContainer, { first: 65_000, last: 65_535 })).toBe(true);
  expect(hasIds(ofContainer, { first: 65_000, last: 65_536 })).toBe(false);
  const inParts = "100 5000 10\n0 1000 1\n110 7000 10\n";
  expect(hasIds(inParts, { first: 100, last: 119 })).toBe(true);
  expect(hasIds(inParts, { first: 100, last: 120 })).toBe(false);
  expect(hasIds("", { first: 1, last: 3 })).toBe(false);
});

test("an agent that is given no range takes one that exists in its user namespace", () => {
  const of = (map: string) => chooseRange((range) => hasIds(map, range));
  expect(of(whole)).toEqual(defaultRange);
  expect(of(ofContainer)).toEqual({ first: 61_184, last: 65_519 });
  expect(of("0 1000 1\n")).toBeUndefined();
});

test("ids are handed out in turn, never one that is in use, and never that of the watchers", () => {
  const range = { first: 100, last: 104 };
  const users = new WorkerUsers(range, 3);
  const inUse = new Set<number>();
  const taken = Array.from({ length: 4 }, () => {
    const user = users.take(inUse);
    inUse.add(user);
    return user;
  });
  expect(taken).toEqual([104, 101, 102, 103]);
  expect(taken).not.toContain(WorkerUsers.ofWatchers(range));
  expect(() => users.take(inUse)).toThrow(
    /all 4 user ids for workers, of 100-104, are in use.*--worker-users.*MILLPOND_E_NO_WORKER/,
  );
  inUse.delete(102);
  inUse.delete(103);
  expect(users.take(inUse)).toBe(102);
  expect(users.take(inUse)).toBe(103);
});

describe("the users of workers", () => {
  const open = "/usr/run-of-an-agent";

  test("are the agent's own from an agent that is not root, which says so", () => {
    const asOther = { runDirectory: open, isRoot: false };
    expect(chooseWorkerUsers({}, asOther)).toEqual({
      user: undefined,
      gap: "only an agent that is root can give workers another user",
    });
    for (const wanted of [{ workerUser: "70000" }, { workerUsers: "70000-70099" }])
      expect(() => chooseWorkerUsers(wanted, asOther)).toThrow(/only root can change users/);
  });

  test("are one or several, not both", () => {
    const wanted = { workerUser: "70000", workerUsers: "70000-70099" };
    expect(() => chooseWorkerUsers(wanted, { runDirectory: open, isRoot: true })).toThrow(
      /either one user, --worker-user, or a user for each claim, --worker-users/,
    );
  });

  test("that are one for all claims are a gap", () => {
    expect(chooseWorkerUsers({ workerUser: "70000" }, { runDirectory: open, isRoot: true })).toEqual({
      user: 70_000,
      gap: "workers of all claims have one user, as --worker-user requires",
    });
  });

  test.runIf(existsHere(defaultRange))("are those of the range, and the first is for watchers", () => {
    expect(chooseWorkerUsers({}, { runDirectory: open, isRoot: true })).toEqual({
      user: defaultRange.first,
      users: defaultRange,
    });
  });

  test("are the agent's own where others cannot enter the run directory", () => {
    const closed = mkdtempSync(join(tmpdir(), "millpond-users-"));
    try {
      const run = join(closed, "run");
      mkdirSync(run);
      const asRoot = { runDirectory: run, isRoot: true };
      expect(chooseWorkerUsers({}, asRoot)).toMatchObject({
        user: undefined,
        gap: expect.stringContaining(`other users cannot enter ${closed}`),
      });
      expect(() => chooseWorkerUsers({ workerUsers: "70000-70099" }, asRoot)).toThrow(
        /cannot run as "70000-70099".*every user can enter/,
      );
    } finally {
      rmSync(closed, { recursive: true });
    }
  });
});
