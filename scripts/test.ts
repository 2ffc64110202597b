// SPDX-License-Identifier: Apache-2.0
// npm test [-- --sanitizers] [--complete]: builds, runs the TypeScript tests and the C++ tests and, with --sanitizers, the
// C++ ones again under the address, undefined-behaviour and thread sanitizers. Ends with the failures and the skipped tests,
// in a few lines each, and one line: "N passed, N failed, N skipped". With --complete, on a machine with everything that
// .ci/run installs, a test that is skipped for a missing dependency counts as failed.
import { mkdir, readFile, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs, styleText } from "node:util";
import { build } from "./build.ts";
import { buildConformance } from "./build-conformance.ts";
import { run, ScriptError, script } from "./lib/command.ts";
import { needsOf, summarizeSkips } from "./lib/checks/expected-skips.ts";
import { inRoot, nativeDir, type Preset } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";
import { type Counts, countJunit, countVitest } from "./lib/checks/test-counts.ts";

/** The result of a successful part without tests. */
const nothing: Counts = { passed: 0, failed: 0, failures: [], skipped: [] };

/** A failure that belongs to no test. */
function brokenPart(why: string): Counts {
  return { passed: 0, failed: 1, failures: [why], skipped: [] };
}

const reports = inRoot("build", "test");

/** Longest run of the TypeScript tests, and of the C++ tests in one build, in milliseconds. */
const typescriptTimeoutMs = 60 * 60_000;
const nativeTimeoutMs = 20 * 60_000;

/** Reads the report of a test runner; undefined if there is none. */
async function readReport(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Runs a test runner and counts by its report. If the report has no failure, a bad exit status counts as one. */
async function runAndCount(
  command: string,
  args: string[],
  report: string,
  count: (text: string) => Counts,
  timeoutMs: number,
): Promise<Counts> {
  await rm(report, { force: true });
  const { status } = await run(command, args, { stream: true, timeoutMs });
  const text = await readReport(report);
  const counts = text === undefined ? nothing : count(text);
  if (status === 0 || counts.failed > 0) return counts;
  const why = `${command} ended with status ${status}${text === undefined ? " and wrote no report" : ""}`;
  return { ...counts, failed: 1, failures: [why] };
}

function typescriptTests(): Promise<Counts> {
  const report = join(reports, "vitest.json");
  const args = ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  return runAndCount("vitest", args, report, countVitest, typescriptTimeoutMs);
}

async function nativeTests(preset: Preset): Promise<Counts> {
  const report = join(reports, `ctest-${preset}.xml`);
  const args = ["--test-dir", nativeDir(preset), "--output-on-failure", "--no-tests=error"];
  // Some tests spend more time waiting for processes than computing.
  args.push("-j", String(availableParallelism() + 1), "--output-junit", report);
  // The thread sanitizer needs a fixed memory layout; if setarch is not allowed, the kernel's default must do.
  const fixed = preset === "tsan" && (await run("setarch", ["-R", "true"])).status === 0;
  const command = fixed ? ["setarch", "-R", "ctest"] : ["ctest"];
  return runAndCount(
    command[0] ?? "ctest",
    [...command.slice(1), ...args],
    report,
    countJunit,
    nativeTimeoutMs,
  );
}

/** Runs one part; a build that fails is reported and counts as one failed test. */
async function part(title: string, body: () => Promise<Counts>): Promise<Counts> {
  console.log(`\n${styleText("bold", title)}`);
  try {
    return await body();
  } catch (error) {
    if (!(error instanceof ScriptError)) throw error;
    console.log(error.message);
    return brokenPart(`${title}: ${error.message}`);
  }
}

async function buildPart(preset: Preset): Promise<Counts> {
  await build(preset);
  await step("conformance programs", buildConformance);
  return nothing;
}

async function sanitized(preset: Preset): Promise<Counts> {
  await build(preset);
  return nativeTests(preset);
}

async function runParts(withSanitizers: boolean): Promise<Counts[]> {
  const results = [await part("Build", () => buildPart("release"))];
  if (results[0]?.failed !== 0) return results;
  results.push(await part("TypeScript tests", typescriptTests));
  results.push(await part("C++ tests", () => nativeTests("release")));
  if (!withSanitizers) return results;
  results.push(await part("C++ tests, address and undefined-behaviour sanitizers", () => sanitized("asan")));
  results.push(await part("C++ tests, thread sanitizer", () => sanitized("tsan")));
  return results;
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values } = parseArgs({
      args,
      options: {
        sanitizers: { type: "boolean", default: false },
        complete: { type: "boolean", default: false },
      },
    });
    await mkdir(reports, { recursive: true });
    const start = performance.now();
    const results = await runParts(values.sanitizers);
    const passed = results.reduce((sum, counts) => sum + counts.passed, 0);
    const skipped = results.flatMap((counts) => counts.skipped);
    const missed = values.complete ? skipped.filter((each) => needsOf(each) === undefined) : [];
    const failed = results.reduce((sum, counts) => sum + counts.failed, missed.length);
    for (const failure of results.flatMap((counts) => counts.failures)) console.log(`\nFAILED ${failure}`);
    for (const { file, name } of missed)
      console.log(`\nFAILED ${file}: ${name}\n    it was skipped, and what it needs should be here`);
    console.log(`\n${summarizeSkips(skipped).join("\n")}`);
    console.log(`\nall of it took ${((performance.now() - start) / 1000).toFixed(0)} s`);
    console.log(`${passed} passed, ${failed} failed, ${skipped.length} skipped`);
    if (failed > 0) process.exitCode = 1;
  });
}
