// SPDX-License-Identifier: Apache-2.0

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { keepRunning } from "./keep.ts";
import { testLog } from "./testing/test-pool.ts";

/** A program that writes its process id into a file at each start, and then runs `script`. */
function makeProgram(script: string) {
  const directory = mkdtempSync(join(tmpdir(), "mp-keep-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const starts = join(directory, "starts");
  const program = join(directory, "program.mjs");
  writeFileSync(starts, "");
  writeFileSync(
    program,
    `import { appendFileSync, readFileSync } from "node:fs";
appendFileSync(${JSON.stringify(starts)}, process.pid + "\\n");
const count = readFileSync(${JSON.stringify(starts)}, "utf8").trim().split("\\n").length;
${script}`,
  );
  const read = () => readFileSync(starts, "utf8").trim().split("\n").filter(Boolean).map(Number);
  return { command: [process.execPath, program], read };
}

async function until(isSo: () => boolean): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error("not within a minute");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test("a program that is killed is started again, and ends when it is asked to", async () => {
  const { command, read } =
    makeProgram(`process.on("SIGTERM", () => process.exit(7)); setInterval(() => {}, 1000);
appendFileSync(process.argv[1] + ".ready", "x");`);
  const stop = new AbortController();
  const kept = keepRunning({ command, signal: stop.signal, log: testLog, goodStartMs: 0, pauseMs: 1 });
  const ready = () => {
    const path = `${command[1]}.ready`;
    return existsSync(path) ? readFileSync(path, "utf8").length : 0;
  };
  for (const times of [1, 2, 3]) {
    await until(() => ready() === times);
    if (times < 3) process.kill(read().at(-1) ?? 0, "SIGKILL");
  }
  expect(new Set(read()).size).toBe(3);
  stop.abort();
  await expect(kept).resolves.toBe(7);
  expect(read().length).toBe(3);
});

test("a program that never starts properly is left to Kubernetes, with its status", async () => {
  const { command, read } = makeProgram("process.exit(3)");
  const { signal } = new AbortController();
  const options = { signal, log: testLog, goodStartMs: 60_000, pauseMs: 1 };
  await expect(keepRunning({ ...options, command })).resolves.toBe(3);
  expect(read().length).toBe(1);
  await expect(keepRunning({ ...options, command: ["/nowhere/program"] })).resolves.toBe(127);
});
