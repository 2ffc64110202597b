// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { Activity } from "./activity.ts";
import { RunDirectory } from "./run-directory.ts";

const log = pino({ level: "silent" });

function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "millpond-activity-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

test("time in which several sessions of an allocation made calls counts once, and time without reports does not", () => {
  using run = RunDirectory.open(makeDirectory());
  const activity = new Activity(run, log);
  activity.add(1, { fromMs: 0, toMs: 1000 });
  activity.add(1, { fromMs: 500, toMs: 1500 });
  activity.add(1, { fromMs: 700, toMs: 1200 });
  activity.add(2, { fromMs: 0, toMs: 1000.6 });
  // The agent was suspended.
  activity.add(1, { fromMs: 1500, toMs: 100_000 });
  expect(activity.totals()).toEqual([
    { epoch: 1, activeMs: 6500 },
    { epoch: 2, activeMs: 1000 },
  ]);
});

test("reported totals are known to the next agent, for as long as the allocation exists", () => {
  const directory = makeDirectory();
  {
    using run = RunDirectory.open(directory);
    const activity = new Activity(run, log);
    for (const epoch of [1, 2, 3]) activity.add(epoch, { fromMs: 0, toMs: 1000 });
    activity.totals();
    activity.add(1, { fromMs: 1000, toMs: 2000 });
    activity.keepOnly(new Set([1, 2]));
  }
  using run = RunDirectory.open(directory);
  const next = new Activity(run, log);
  next.add(2, { fromMs: 0, toMs: 500 });
  expect(next.totals()).toEqual([
    { epoch: 1, activeMs: 1000 },
    { epoch: 2, activeMs: 1500 },
  ]);
  run.enterPool("another");
  expect(new Activity(run, log).totals()).toEqual([]);
});

test("while the disk is full the totals on disk are reported, and all of them when there is room", () => {
  using run = RunDirectory.open(makeDirectory());
  using disk = new DatabaseSync(":memory:");
  disk.exec("PRAGMA max_page_count = 2; CREATE TABLE t (x)");
  let isFull = false;
  const fill = () => {
    if (isFull) disk.exec("INSERT INTO t VALUES (zeroblob(100000))");
  };
  const activity = new Activity(
    {
      activity: () => run.activity(),
      keepActivity: (totals) => {
        fill();
        run.keepActivity(totals);
      },
      forgetActivity: (epochs) => {
        fill();
        run.forgetActivity(epochs);
      },
    },
    log,
  );
  activity.add(1, { fromMs: 0, toMs: 1000 });
  activity.add(2, { fromMs: 0, toMs: 1000 });
  activity.totals();
  isFull = true;
  activity.add(1, { fromMs: 1000, toMs: 3000 });
  expect(activity.totals()).toContainEqual({ epoch: 1, activeMs: 1000 });
  activity.keepOnly(new Set([1]));
  isFull = false;
  expect(activity.totals()).toEqual([{ epoch: 1, activeMs: 3000 }]);
  expect(run.activity()).toContainEqual([1, 3000]);
});
