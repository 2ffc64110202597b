// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import type { Report } from "./report.ts";

const main = join(import.meta.dirname, "main.ts");
const runFile = promisify(execFile);

/** One program of each variant that a host without nvcc can build, and of the others if they are built. */
const quick = [
  "driver/modules",
  "driver/sharing",
  "driver/sharing-pools",
  "vectors",
  "atomics",
  "divergence",
  "printf",
  "errors-sticky",
  "per-thread/streams",
];

interface Ended {
  readonly stdout: string;
  readonly stderr: string;
}

/** The programs that are built. */
async function present(names: readonly string[]): Promise<readonly string[]> {
  const { stdout } = (await runFile(process.execPath, [main, "--list"])) as Ended;
  const listed = stdout.split("\n").map((line) => line.split(" ", 1)[0] ?? "");
  return names.filter((name) => listed.some((each) => each === name || each.split("/").includes(name)));
}

test("programs of every form do through Millpond what they do without", async () => {
  const directory = await mkdtemp(join(tmpdir(), "millpond-conformance-test-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const names = await present(quick);
  expect(names).toContain("driver/modules");
  const file = join(directory, "report.json");
  const failure = await runFile(process.execPath, [main, "--json", file, ...names]).then(
    () => "",
    (error: Ended) => error.stdout + error.stderr,
  );
  expect(failure).toBe("");
  const report = JSON.parse(await readFile(file, "utf8")) as Report;
  expect(report.counts).toMatchObject({ different: 0, failed: 0, stale: 0 });
  expect(report.counts.same).toBeGreaterThanOrEqual(names.length);
});

test.each([
  [["--jobs", "0"], 2, "--jobs"],
  [["--transport", "pigeon"], 2, "pigeon is not one of"],
  [["--no-such-option"], 2, "no-such-option"],
  [["--list", "no-such-program"], 1, "no program is named no-such-program"],
])("a bad command line is refused: %j", async (args, status, complaint) => {
  const failure = await runFile(process.execPath, [main, ...args]).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: status, stderr: expect.stringContaining(complaint) as string });
});
