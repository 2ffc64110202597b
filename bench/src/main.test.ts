// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { metrics } from "./results/metrics.ts";
import type { Result } from "./results/result.ts";

const main = join(import.meta.dirname, "main.ts");
const runFile = promisify(execFile);

test("everything is measured over every transport on the software GPU", async () => {
  const directory = await mkdtemp(join(tmpdir(), "millpond-bench-test-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const file = join(directory, "result.json");
  const { stdout } = await runFile(process.execPath, [main, "--quick", "--rounds", "1", "--json", file]);
  expect(stdout).toContain("cuLaunchKernel");

  const result = JSON.parse(await readFile(file, "utf8")) as Result;
  expect(result.hardware).toContain("Software GPU");
  expect(result.results.map(({ transport }) => transport)).toEqual(["native", "shm", "tcp", "tls"]);
  const measured = new Set(result.results.flatMap((each) => Object.keys(each.metrics)));
  expect([...measured].toSorted()).toEqual(metrics.map(({ name }) => name).toSorted());
  for (const each of result.results)
    for (const [name, { median }] of Object.entries(each.metrics))
      expect(median, `${each.transport} ${name}`).toBeGreaterThan(0);
});

test.each([
  [["--rounds", "0"], "--rounds"],
  [["--only", "calls,nothing"], "nothing is not one of"],
  [["--save", "../elsewhere"], "--save"],
  [["--no-such-option"], "no-such-option"],
])("a bad command line is refused: %j", async (args, complaint) => {
  const failure = await runFile(process.execPath, [main, ...args]).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: 2, stderr: expect.stringContaining(complaint) as string });
});
