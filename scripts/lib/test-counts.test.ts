// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { countJunit, countVitest } from "./test-counts.ts";

test("counts vitest's tests, and a file that could not be loaded as one failure", () => {
  const report = {
    numPassedTests: 3,
    numFailedTests: 1,
    testResults: [
      { status: "passed", assertionResults: [{ status: "passed" }, { status: "passed" }] },
      { status: "failed", assertionResults: [{ status: "failed" }, { status: "passed" }] },
      { status: "failed", assertionResults: [] },
    ],
  };
  expect(countVitest(JSON.stringify(report))).toEqual({ passed: 3, failed: 2 });
});

test("counts ctest's programs", () => {
  const report = `<?xml version="1.0"?>
<testsuite name="Linux-c++" tests="9" failures="2" disabled="1" skipped="1" hostname="" time="3">
  <testcase name="a" status="run"/>
</testsuite>`;
  expect(countJunit(report)).toEqual({ passed: 5, failed: 2 });
});
