// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const program = join(import.meta.dirname, "grants.ts");
const runFile = promisify(execFile);

async function measure(...options: string[]): Promise<unknown> {
  const directory = await mkdtemp(join(tmpdir(), "millpond-bench-test-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const file = join(directory, "result.json");
  const small = ["--nodes", "4", "--devices", "2", "--clients", "2", "--passes", "1", "--seconds", "1"];
  await runFile(process.execPath, [program, ...small, "--json", file, ...options]);
  return JSON.parse(await readFile(file, "utf8"));
}

const positive = expect.toSatisfy((value) => typeof value === "number" && value > 0) as number;

test("grants are measured from the request to the agent's acknowledgement", async () => {
  expect(await measure("--standing", "1")).toMatchObject({
    gpus: 8,
    standing: 1,
    passes: [
      { grantsPerSecond: positive, grantMs: { p50: positive, p99: positive }, syncsPerSecond: positive },
    ],
  });
});

test("a controller that was killed comes back with its claims", async () => {
  expect(await measure("--restart", "20")).toMatchObject({
    claims: 20,
    restarts: [{ listensSeconds: positive, reportedSeconds: positive, grantedSeconds: positive }],
  });
});

test.each([[["--nodes", "-1"]], [["--save", "../elsewhere"]], [["--no-such-option"]]])(
  "a bad command line is refused: %j",
  async (args) => {
    const failure = await runFile(process.execPath, [program, ...args]).catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: 2, stderr: expect.stringContaining(args[0] ?? "") as string });
  },
);
