// SPDX-License-Identifier: Apache-2.0
// How many tests passed and failed, by the reports of the test runners.

export interface Counts {
  passed: number;
  failed: number;
}

/** The part of vitest's JSON report that is used here. */
interface VitestReport {
  numPassedTests: number;
  numFailedTests: number;
  testResults: { status: string; assertionResults: { status: string }[] }[];
}

/** Counts a report of vitest's json reporter. A file that failed outside its tests counts as one failed test. */
export function countVitest(text: string): Counts {
  const report = JSON.parse(text) as VitestReport;
  const brokenFiles = report.testResults.filter(
    (file) => file.status === "failed" && !file.assertionResults.some((test) => test.status === "failed"),
  );
  return { passed: report.numPassedTests, failed: report.numFailedTests + brokenFiles.length };
}

/** Counts a JUnit report of ctest; a test program that did not run is neither passed nor failed. */
export function countJunit(text: string): Counts {
  const suite = /<testsuite\b[^>]*>/.exec(text)?.[0] ?? "";
  const attribute = (name: string): number => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
  const failed = attribute("failures");
  return { passed: attribute("tests") - failed - attribute("skipped") - attribute("disabled"), failed };
}
