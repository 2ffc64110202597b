// SPDX-License-Identifier: Apache-2.0
// What test runners report: how many tests passed, and what failed and why.

export interface Counts {
  passed: number;
  failed: number;
  /** What failed: the test's name, and below it what it said. */
  failures: string[];
}

/** Lines of a failure's message that are kept. */
const messageLines = 12;

/** The part of vitest's JSON report that is used here. */
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

/** Counts a report of vitest's json reporter. A file that failed outside its tests counts as one failed test. */
export function countVitest(text: string): Counts {
  const report = JSON.parse(text) as VitestReport;
  const failures = report.testResults.flatMap(failuresOfFile);
  return {
    passed: report.numPassedTests,
    failed: Math.max(report.numFailedTests, failures.length),
    failures,
  };
}

/** Counts a JUnit report of ctest; a test program that did not run is neither passed nor failed. */
export function countJunit(text: string): Counts {
  const suite = /<testsuite\b[^>]*>/.exec(text)?.[0] ?? "";
  const attribute = (name: string): number => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
  const failed = attribute("failures");
  // What a program printed stands above the table of its kind already; its name is enough here.
  const failures = [...text.matchAll(/<testcase\b[^>]*?\bname="([^"]*)"[^>]*\bstatus="fail"/g)].map(
    (match) => match[1] ?? "",
  );
  return {
    passed: attribute("tests") - failed - attribute("skipped") - attribute("disabled"),
    failed,
    failures,
  };
}
