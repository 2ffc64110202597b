// SPDX-License-Identifier: Apache-2.0

import { copyFileSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Home } from "../../test/fixture.ts";
import { isOwnLibrary } from "./driver-search.ts";
import { findNativeFiles } from "./native-files.ts";

test("are found as a package has them and as the build has them", () => {
  using home = new Home();
  const environment = { MILLPOND_NATIVE_DIR: home.native };
  const files = findNativeFiles(environment);
  expect(files).toEqual({
    worker: join(home.native, "millpond-worker"),
    client: join(home.native, "client", "libcuda.so.1"),
    softgpu: home.softgpu,
  });
  mkdirSync(join(home.native, "worker"));
  renameSync(files.worker, join(home.native, "worker", "millpond-worker"));
  expect(findNativeFiles(environment).worker).toBe(join(home.native, "worker", "millpond-worker"));
});

test("that are missing are named, with what to do", () => {
  using home = new Home();
  rmSync(home.softgpu);
  expect(() => findNativeFiles({ MILLPOND_NATIVE_DIR: home.native })).toThrow(
    /missing: .*softgpu\/libcuda\.so\.1.*npm run build.*\[MILLPOND_E_NOT_INSTALLED\]$/,
  );
  expect(() => findNativeFiles({ MILLPOND_NATIVE_DIR: "/nowhere" })).toThrow(
    /\/nowhere\/client\/libcuda\.so\.1/,
  );
});

test("our own libraries are never taken for a driver, under whatever name", () => {
  using home = new Home();
  const native = findNativeFiles({ MILLPOND_NATIVE_DIR: home.native });
  const elsewhere = mkdtempSync(join(tmpdir(), "millpond-driver-"));
  const link = join(elsewhere, "libcuda.so.1");
  symlinkSync(native.client, link);
  expect(isOwnLibrary(link, native)).toBe(true);
  const copy = join(elsewhere, "copy.so");
  // Every copy of our library contains the names of the variables that it reads; a driver never does.
  copyFileSync(join(import.meta.dirname, "..", "connection", "connection.ts"), copy);
  expect(isOwnLibrary(copy, native)).toBe(true);
  expect(isOwnLibrary(process.execPath, native)).toBe(false);
  rmSync(elsewhere, { recursive: true });
});
