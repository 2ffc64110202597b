// SPDX-License-Identifier: Apache-2.0

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { countGpusOfHost, visibleDevices } from "./visible-devices.ts";

test("a program sees what it was granted, and no more of what its host has", () => {
  expect(visibleDevices(undefined, 1, 8)).toBe("0");
  expect(visibleDevices(undefined, 3, 8)).toBe("0,1,2");
  expect(visibleDevices(undefined, 1, 1)).toBeUndefined();
  expect(visibleDevices(undefined, 4, 0)).toBeUndefined();
});

test("what the user says stays", () => {
  expect(visibleDevices("1", 2, 8)).toBe("1");
  expect(visibleDevices("", 2, 8)).toBe("");
});

test("the host's GPUs are counted where its driver lists them", () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-gpus-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  expect(countGpusOfHost(join(directory, "gpus"))).toBe(0);
  mkdirSync(join(directory, "gpus", "0000:0a:00.0"), { recursive: true });
  mkdirSync(join(directory, "gpus", "0000:0b:00.0"));
  expect(countGpusOfHost(join(directory, "gpus"))).toBe(2);
});
