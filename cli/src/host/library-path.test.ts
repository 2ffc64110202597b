// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { programLibraryPath, programPreload } from "./library-path.ts";

test.for([
  [undefined, "/usr/bin/node", "/client"],
  ["", "/usr/bin/node", "/client"],
  ["/a:/b", "/usr/bin/node", "/client:/a:/b"],
  ["/usr/lib:/a", "/usr/bin/node", "/client:/usr/lib:/a"],
  ["/pack/node/lib", "/pack/node/bin/node", "/client"],
  ["/pack/node/lib:/a", "/pack/node/bin/node", "/client:/a"],
  ["/a:/pack/node/lib", "/pack/node/bin/node", "/client:/a:/pack/node/lib"],
] as const)("LD_LIBRARY_PATH=%s under %s gives the program %s", ([path, node, expected]) => {
  const environment = path === undefined ? {} : { LD_LIBRARY_PATH: path };
  expect(programLibraryPath(environment, "/client", node)).toBe(expected);
});

test("LD_PRELOAD has the user's libraries first, then those of profilers that are there, each once", () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-preload-"));
  try {
    expect(programPreload({}, directory)).toBeUndefined();
    expect(programPreload({ LD_PRELOAD: "/a.so" }, directory)).toBe("/a.so");
    const [newer, older] = ["libcupti.so.13", "libcupti.so.12"].map((name) => join(directory, name));
    for (const path of [newer, older]) writeFileSync(path ?? "", "");
    expect(programPreload({}, directory)).toBe(`${newer}:${older}`);
    expect(programPreload({ LD_PRELOAD: "/a.so /b.so" }, directory)).toBe(`/a.so:/b.so:${newer}:${older}`);
    expect(programPreload({ LD_PRELOAD: `${newer}:${older}` }, directory)).toBe(`${newer}:${older}`);
    expect(programPreload({ MILLPOND_PRELOAD: "0", LD_PRELOAD: "/a.so" }, directory)).toBe("/a.so");
    expect(programPreload({ MILLPOND_PRELOAD: "0" }, directory)).toBeUndefined();
  } finally {
    rmSync(directory, { recursive: true });
  }
});
