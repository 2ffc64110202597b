// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const main = join(import.meta.dirname, "shares.ts");
const runFile = promisify(execFile);

test("what tenants get, and how long requests take, is measured on the software GPU", async () => {
  const directory = await mkdtemp(join(tmpdir(), "millpond-bench-test-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const file = join(directory, "result.json");
  const options = ["--seconds", "3", "--only", "requests, training best", "--json", file];
  const { stdout } = await runFile(process.execPath, [main, ...options]);
  expect(stdout).toContain("best-effort");

  const { results } = JSON.parse(await readFile(file, "utf8")) as { results: unknown };
  expect(results).toEqual([
    {
      scenario: "requests, training best effort",
      tenants: [
        expect.objectContaining({ tenant: "requests", latency: expect.objectContaining({ requests: 150 }) }),
        expect.objectContaining({ serviceClass: "best-effort", share: expect.anything() }),
      ],
    },
  ]);
});

test.each([
  [["--only", "nothing"], "no scenario"],
  [["--seconds", "2"], "--seconds"],
])("a bad command line is refused: %j", async (args, complaint) => {
  const failure = await runFile(process.execPath, [main, ...args]).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: 2, stderr: expect.stringContaining(complaint) as string });
});
