// SPDX-License-Identifier: Apache-2.0

import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { RunDirectory } from "./run-directory.ts";

let path: string;

beforeEach(() => {
  path = mkdtempSync(join(tmpdir(), "millpond-run-"));
});

afterEach(() => rmSync(path, { recursive: true, force: true }));

function groups(...of: readonly (readonly [claim: string, epoch: number])[]): readonly string[] {
  using run = RunDirectory.open(path);
  return of.map(([claim, epoch]) => run.groupOf(claim, epoch));
}

test("the sessions of an allocation have a secret in common, whichever agent opens them, and no others have it", () => {
  const [group, again, later, other] = groups(["a", 1], ["a", 1], ["a", 2], ["b", 1]);
  expect(group).toMatch(/^[0-9a-f]{64}$/);
  expect(again).toBe(group);
  expect(new Set([group, later, other]).size).toBe(3);
  expect(groups(["a", 1])).toEqual([group]);
});

test("no other user of the node can read what was admitted, or lock the agent out of it by reading", () => {
  const database = join(path, "agent.db");
  groups(["a", 1]);
  expect(statSync(database).mode & 0o777).toBe(0o600);
  // Permissions as earlier agents set them.
  chmodSync(database, 0o644);
  using again = RunDirectory.open(path);
  expect(again.path).toBe(path);
  expect(statSync(database).mode & 0o777).toBe(0o600);
  expect(statSync(`${database}-wal`).mode & 0o777).toBe(0o600);
});

test("no other user of the node can read the key of secrets, and a truncated key is replaced", () => {
  const [group] = groups(["a", 1]);
  const key = join(path, "group.key");
  expect(statSync(key).mode & 0o777).toBe(0o600);
  truncateSync(key, 5);
  const [fresh] = groups(["a", 1]);
  expect(fresh).toMatch(/^[0-9a-f]{64}$/);
  expect(fresh).not.toBe(group);
});

test("images of a tenant are in a folder that no other tenant can name, and that is the same for the next agent", () => {
  mkdirSync(join(path, "images"));
  writeFileSync(join(path, "images", "f".repeat(64)), "of all tenants, as agents kept it before");
  const open = (...tenants: readonly string[]) => {
    using run = RunDirectory.open(path);
    return tenants.map((tenant) => run.tenantOf(tenant));
  };
  const [first = "", again, second = ""] = open("team-a", "team-a", "team-b");
  expect(first).toMatch(/^[0-9a-f]{64}$/);
  expect(again).toBe(first);
  expect(second).not.toBe(first);
  expect(open("team-a")).toEqual([first]);
  expect(readdirSync(join(path, "images")).toSorted()).toEqual([first, second].toSorted());
  expect(statSync(join(path, "images", first)).mode & 0o777).toBe(0o700);
  // Another node has another key, and therefore other names.
  rmSync(join(path, "group.key"));
  expect(open("team-a")).not.toEqual([first]);
});

test.runIf(process.getuid?.() === 0)(
  "workers with users of their own can open the folder of their tenant, and list none",
  () => {
    using run = RunDirectory.open(path);
    run.openToWorkers();
    const name = run.tenantOf("team-a");
    expect(statSync(join(path, "images"))).toMatchObject({ uid: 0, mode: 0o40711 });
    expect(statSync(join(path, "images", name))).toMatchObject({ uid: 0, mode: 0o40777 });
  },
);

test.runIf(process.getuid?.() === 0)(
  "the directory of an allocation is of its workers' user alone, with the files that earlier workers made",
  () => {
    using run = RunDirectory.open(path);
    run.openToWorkers();
    const directory = run.claimDirectory("claim", 1, 1_900_000_001);
    writeFileSync(join(directory, "things"), "");
    symlinkSync(join(path, "group.key"), join(directory, "link"));
    expect(run.claimDirectory("claim", 1, 1_900_000_002)).toBe(directory);
    expect(statSync(join(path, "claims"))).toMatchObject({ uid: 0, mode: 0o40711 });
    expect(statSync(directory)).toMatchObject({ uid: 1_900_000_002, mode: 0o40700 });
    expect(statSync(join(directory, "things")).uid).toBe(1_900_000_002);
    // The target of the link is not theirs, and stays untouched.
    expect(statSync(join(path, "group.key")).uid).toBe(0);
  },
);
