// SPDX-License-Identifier: Apache-2.0
import { expect, test } from "vitest";
import { lineDiff, type Run } from "./compare.ts";
import { judge } from "./verdict.ts";

function run(stdout: string, status = 0): Run {
  return { status, stdout, stderr: "", milliseconds: 1 };
}

test("the same output of every run is the same", () => {
  const runs = { native: run("a\n"), shm: run("a\n"), tcp: run("a\n") };
  expect(judge(runs, undefined, undefined)).toEqual({ outcome: "same", reason: "", details: [] });
});

test("another output is different, and shown", () => {
  const verdict = judge(
    { native: run("a\nb\n"), shm: run("a\nb\n"), tcp: run("a\nc\n") },
    undefined,
    undefined,
  );
  expect(verdict).toMatchObject({ outcome: "different", reason: "tcp: not as native" });
  expect(verdict.details).toEqual(["- native, + tcp", " a", "-b", "+c", " "]);
});

test("what a card printed is the measure where it is recorded", () => {
  const verdict = judge({ shm: run("a\n"), tcp: run("a\n") }, "b\n", undefined);
  expect(verdict).toMatchObject({ outcome: "different", reason: "shm: not as recorded" });
});

test("a program that says why it skips is not held to what a better device printed", () => {
  const skipped = run("skipped: needs compute capability 9.0\n");
  const verdict = judge({ shm: skipped, tcp: skipped }, "much\n", undefined);
  expect(verdict).toEqual({ outcome: "skipped", reason: "needs compute capability 9.0", details: [] });
});

test.each([
  [run("", 3), "native: exit status 3"],
  [run("", 139), "native: ended by signal 11"],
  [{ ...run(""), status: undefined }, "native: did not end in time"],
])("a run that does not end with status 0 has failed", (native, reason) => {
  expect(judge({ native, shm: run("") }, undefined, undefined)).toMatchObject({ outcome: "failed", reason });
});

test("a listed failure is refused, and a listed program that passes is an error", () => {
  const refusal = { of: "every run", why: "no tensor cores" } as const;
  expect(judge({ shm: run("", 1) }, undefined, refusal)).toEqual({
    outcome: "refused",
    reason: "no tensor cores",
    details: [],
  });
  expect(judge({ shm: run("a") }, undefined, refusal).outcome).toBe("stale");
});

test("what fails without Millpond alone is compared with it all the same", () => {
  const refusal = { of: "native", why: "no such function there" } as const;
  expect(judge({ native: run("", 127), shm: run("a"), tcp: run("a") }, undefined, refusal).outcome).toBe(
    "same",
  );
  expect(judge({ native: run("", 127), shm: run("a"), tcp: run("b") }, undefined, refusal).outcome).toBe(
    "different",
  );
  expect(judge({ native: run("a"), shm: run("a"), tcp: run("a") }, undefined, refusal).outcome).toBe("stale");
});

test("what fails over TCP alone is compared without it", () => {
  const refusal = { of: "tcp", why: "no mapped memory there" } as const;
  expect(judge({ native: run("a"), shm: run("a"), tcp: run("", 1) }, undefined, refusal).outcome).toBe(
    "same",
  );
  expect(judge({ native: run("a"), shm: run("b"), tcp: run("", 1) }, undefined, refusal).outcome).toBe(
    "different",
  );
  expect(judge({ native: run("a"), shm: run("a"), tcp: run("a") }, undefined, refusal).outcome).toBe("stale");
});

test("a difference is shown with the lines around it, and long equal parts are left out", () => {
  const lines = Array.from({ length: 20 }, (_, index) => String(index));
  const changed = lines.with(10, "ten").toSpliced(12, 0, "more");
  expect(lineDiff(lines.join("\n"), changed.join("\n"))).toEqual([
    "…",
    " 7",
    " 8",
    " 9",
    "-10",
    "+ten",
    " 11",
    "+more",
    " 12",
    " 13",
    " 14",
    "…",
  ]);
});
