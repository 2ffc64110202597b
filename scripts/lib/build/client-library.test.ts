// SPDX-License-Identifier: Apache-2.0
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { checkClientLibrary, findFaults } from "./client-library.ts";
import { must } from "../command.ts";

const good = {
  needed: ["libc.so.6"],
  versions: ["GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_2.28"],
  exports: ["cuInit"],
};

test("a library of old symbols and driver names has no fault", () => {
  expect(findFaults(good, "cu")).toEqual([]);
});

test.each([
  [{ needed: ["libstdc++.so.6"] }, /needs libstdc\+\+\.so\.6/],
  [{ versions: ["GLIBC_2.34"] }, /GLIBC_2\.34, newer than/],
  [{ versions: ["GLIBC_3"] }, /GLIBC_3, newer than/],
  [{ versions: ["CXXABI_1.3"] }, /CXXABI_1\.3, which is not glibc's/],
  [{ exports: ["cuInit", "main"] }, /exports 1 names not of cu\*: main/],
  [{ exports: [] }, /exports nothing/],
])("%o is a fault", (change, message) => {
  const faults = findFaults({ ...good, ...change }, "cu");
  expect(faults).toHaveLength(1);
  expect(faults[0]).toMatch(message);
});

test("reads what a real library exports", async () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-library-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const source = join(directory, "a.c");
  const library = join(directory, "a.so");
  writeFileSync(
    source,
    "#include <stdlib.h>\nint cuInit(unsigned n) { return malloc(n) != 0; }\nstatic int hidden(void);\n",
  );
  await must("cc", ["-shared", "-fPIC", source, "-o", library]);
  await expect(checkClientLibrary(library, "cu")).resolves.toBeUndefined();
  await expect(checkClientLibrary(library, "nvml")).rejects.toThrow("exports 1 names not of nvml*: cuInit");
});
