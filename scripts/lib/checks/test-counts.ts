// SPDX-License-Identifier: Apache-2.0
// Parses the reports of test runners: the number of passed tests, and the failures with their messages.

export interface Counts {
  passed: number;
  failed: number;
  /** Failures: the test's name, followed by its message. */
  failures: string[];
  /** Tests that did not run because this machine lacks a dependency: file, and name. */
  skipped: Skipped[];
}

/** A test that did not run. */
export interface Skipped {
  /** Path of the file, as the runner reports it. */
  readonly file: string;
  readonly name: string;
}

/** The number of lines of a failure's message that are kept. */
const messageLines = 12;

/** The part of vitest's JSON report that is used. */
interface VitestReport {
  numPassedTests: number;
  numFailedTests: number;
  testResults: VitestFile[];
}

interface VitestFile {
  /** Path of the file. */
  name: string;
  status: string;
  /** Why the file failed outside its tests. */
  message: string;
  assertionResults: { status: string; fullName: string; failureMessages: string[] }[];
}

function failure(name: string, message: string): string {
  const lines = message.trim().split("\n");
  const kept = lines.slice(0, messageLines).map((line) => `    ${line}`);
  return [name, ...kept].join("\n");
}

function failuresOfFile(file: VitestFile): string[] {
  const tests = file.assertionResults
    .filter((test) => test.status === "failed")
    .map((test) => failure(`${file.name}: ${test.fullName}`, test.failureMessages.join("\n")));
  if (tests.length > 0 || file.status !== "failed") return tests;
  return [failure(file.name, file.message)];
}

function skippedInFile(file: VitestFile): Skipped[] {
  return file.assertionResults
    .filter(({ status }) => status === "skipped" || status === "pending")
    .map(({ fullName }) => ({ file: file.name, name: fullName }));
}

/** Counts a report of vitest's json reporter. A file that failed outside its tests counts as one failed test. */
export function countVitest(text: string): Counts {
  const report = JSON.parse(text) as VitestReport;
  const failures = report.testResults.flatMap(failuresOfFile);
  return {
    passed: report.numPassedTests,
    failed: Math.max(report.numFailedTests, failures.length),
    failures,
    skipped: report.testResults.flatMap(skippedInFile),
  };
}

/** Counts a JUnit report of ctest; a disabled test program is neither passed nor failed nor skipped. */
export function countJunit(text: string): Counts {
  const suite = /<testsuite\b[^>]*>/.exec(text)?.[0] ?? "";
  const attribute = (name: string): number => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
  const failed = attribute("failures");
  // The output of the program has already been printed; its name is sufficient here.
  const failures = [...text.matchAll(/<testcase\b[^>]*?\bname="([^"]*)"[^>]*\bstatus="fail"/g)].map(
    (match) => match[1] ?? "",
  );
  const notRun = [...text.matchAll(/<testcase\b[^>]*?\bname="([^"]*)"[^>]*\bstatus="notrun"/g)];
  return {
    passed: attribute("tests") - failed - attribute("skipped") - attribute("disabled"),
    failed,
    failures,
    skipped: notRun.map((match) => ({ file: "ctest", name: match[1] ?? "" })),
  };
}
