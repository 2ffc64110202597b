// SPDX-License-Identifier: Apache-2.0
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { stagePackage } from "./package-tree.ts";
import { renderSpec, rpmUnits } from "./rpm-package.ts";
import { inRoot } from "../paths.ts";

test("the spec lists each file of the tree once, its own folders alone, and its configuration as such", async () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-rpm-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const archive = join(directory, "archive");
  mkdirSync(archive);
  writeFileSync(join(archive, "millpond"), "#!/bin/sh\n");
  chmodSync(join(archive, "millpond"), 0o755);
  const stage = join(directory, "stage");
  const options = { archive, stage, version: "1.2.3", glibc: "2.34", work: "", output: "" };
  await stagePackage({ ...options, units: rpmUnits });
  const spec = await renderSpec(options);
  const listed: readonly string[] = spec.slice(spec.indexOf("%files")).match(/"[^"]+"/g) ?? [];
  const files = readdirSync(stage, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => `"${join(entry.parentPath, entry.name).slice(stage.length)}"`);
  expect(new Set(listed).size).toBe(listed.length);
  expect(files.filter((file) => !listed.includes(file))).toEqual([]);
  const folders = listed.filter((path) => !files.includes(path));
  expect(folders).toContain('"/usr/lib/millpond"');
  expect(folders.filter((path) => !/millpond/.test(path))).toEqual([]);
  expect(files.filter((file) => file.startsWith('"/lib/'))).toEqual([]);
  expect(spec).toContain('%config(noreplace) "/etc/millpond/controller.yaml"');
  expect(spec).toMatch(/^Version: 1\.2\.3\n.*Requires: glibc >= 2\.34\n/ms);
});

test.each(["post", "preun", "postun"])("the script %s is one that a shell understands", (name) => {
  expect(spawnSync("sh", ["-n", inRoot("packaging", "rpm", name)])).toMatchObject({ status: 0 });
});
