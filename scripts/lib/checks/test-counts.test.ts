// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { countJunit, countVitest } from "./test-counts.ts";

test("counts vitest's tests and says what failed, also where a file could not be loaded", () => {
  const passed = { status: "passed", fullName: "adds", failureMessages: [] };
  const failed = {
    status: "failed",
    fullName: "subtracts",
    failureMessages: ["expected 1 to be 2\n  at sum.ts:3"],
  };
  const skipped = { status: "skipped", fullName: "divides", failureMessages: [] };
  const report = {
    numPassedTests: 3,
    numFailedTests: 1,
    testResults: [
      { name: "a.test.ts", status: "passed", message: "", assertionResults: [passed, passed, skipped] },
      { name: "b.test.ts", status: "failed", message: "", assertionResults: [failed, passed] },
      { name: "c.test.ts", status: "failed", message: "Cannot find module", assertionResults: [] },
    ],
  };
  expect(countVitest(JSON.stringify(report))).toEqual({
    passed: 3,
    failed: 2,
    failures: [
      "b.test.ts: subtracts\n    expected 1 to be 2\n      at sum.ts:3",
      "c.test.ts\n    Cannot find module",
    ],
    skipped: [{ file: "a.test.ts", name: "divides" }],
  });
});

test("counts ctest's programs and names those that failed", () => {
  const report = `<?xml version="1.0"?>
<testsuite name="Linux-c++"
	tests="9"
	failures="2"
	disabled="1"
	skipped="1"
	hostname="" time="3">
  <testcase name="a" classname="a" time="0.1" status="run"/>
  <testcase name="b" classname="b" time="0.1" status="fail"><failure message="Failed"/></testcase>
  <testcase name="c" classname="c" time="0.1" status="fail"><failure message="Timeout"/></testcase>
  <testcase name="d" classname="d" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
</testsuite>`;
  expect(countJunit(report)).toEqual({
    passed: 5,
    failed: 2,
    failures: ["b", "c"],
    skipped: [{ file: "ctest", name: "d" }],
  });
});
