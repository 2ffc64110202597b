// SPDX-License-Identifier: Apache-2.0
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { stagePackage } from "./package-tree.ts";
import { buildRpmPackage, renderSpec, rpmFolders } from "./rpm-package.ts";
import { inRoot } from "../paths.ts";

const hasRpm = spawnSync("rpmbuild", ["--version"]).status === 0;
const isRoot = process.getuid?.() === 0;

/** Options of a package of a small tree in place of the archive. */
function smallPackage() {
  const directory = mkdtempSync(join(tmpdir(), "millpond-rpm-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const archive = join(directory, "archive");
  mkdirSync(archive);
  writeFileSync(join(archive, "millpond"), '#!/bin/sh\necho "$@"\n');
  chmodSync(join(archive, "millpond"), 0o755);
  const at = (name: string): string => join(directory, name);
  return {
    directory,
    archive,
    version: "1.2.3",
    glibc: "2.34",
    stage: at("stage"),
    work: at("work"),
    output: at("millpond.rpm"),
  };
}

/** Paths of regular files and links below a directory. */
function filesOf(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length))
    .toSorted();
}

test("the spec lists each file of the tree once, its own folders alone, and its configuration as such", async () => {
  const options = smallPackage();
  const { stage } = options;
  await stagePackage({ ...options, folders: rpmFolders });
  const spec = await renderSpec(options);
  const listed: readonly string[] = spec.slice(spec.indexOf("%files")).match(/"[^"]+"/g) ?? [];
  const files = filesOf(stage).map((file) => `"${file}"`);
  expect(new Set(listed).size).toBe(listed.length);
  expect(files.filter((file) => !listed.includes(file))).toEqual([]);
  const folders = listed.filter((path) => !files.includes(path));
  expect(folders).toContain('"/usr/lib/millpond"');
  expect(folders.filter((path) => !/millpond|"\/usr\/share\/(bash-completion|fish|zsh)/.test(path))).toEqual(
    [],
  );
  expect(files.filter((file) => file.startsWith('"/lib/'))).toEqual([]);
  expect(spec).toContain('%config(noreplace) "/etc/millpond/controller.yaml"');
  expect(spec).toMatch(/^Version: 1\.2\.3\n.*Requires: glibc >= 2\.34\n/ms);
});

test.each(["post", "preun", "postun"])("the script %s is one that a shell understands", (name) => {
  expect(spawnSync("sh", ["-n", inRoot("packaging", "rpm", name)])).toMatchObject({ status: 0 });
});

describe.skipIf(!hasRpm)("the RPM package", () => {
  const query = (file: string, ...args: string[]): string =>
    execFileSync("rpm", ["-qp", ...args, file], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

  test("has the files of the Debian package, units and completions of zsh in their own places", async () => {
    const options = smallPackage();
    await buildRpmPackage(options);
    const listed = query(options.output, "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES}\n]")
      .trim()
      .split("\n")
      .filter((line) => !line.startsWith("d"));
    expect(listed.filter((line) => line.split(" ")[1] !== "root")).toEqual([]);
    const paths = listed.map((line) => line.split(" ")[2] ?? "");
    const debian = join(options.directory, "debian");
    await stagePackage({ ...options, stage: debian });
    const expected = filesOf(debian).map((file) =>
      file
        .replace(/^\/lib\/systemd\/system\//, "/usr/lib/systemd/system/")
        .replace("/zsh/vendor-completions/", "/zsh/site-functions/"),
    );
    expect(new Set(paths)).toEqual(new Set(expected));
    expect(query(options.output, "--configfiles").trim()).toBe("/etc/millpond/controller.yaml");
    expect(query(options.output, "--requires")).toContain("glibc >= 2.34");
  });

  test("is the same, byte for byte, when it is made of the same", async () => {
    const options = smallPackage();
    const first = readFileSync(await buildRpmPackage(options));
    const second = readFileSync(await buildRpmPackage(options));
    expect(first.equals(second)).toBe(true);
  });

  test.skipIf(!isRoot)(
    "keeps changed configuration on an upgrade, and leaves only the state behind",
    async () => {
      const options = smallPackage();
      const fs = join(options.directory, "fs");
      mkdirSync(join(fs, "var/lib/rpm"), { recursive: true });
      const rpm = (...args: string[]) =>
        execFileSync("rpm", ["--root", fs, "--define", "_dbpath /var/lib/rpm", ...args], {
          encoding: "utf8",
          stdio: ["ignore", "pipe", "pipe"],
        });
      // The folder has neither a shell nor other packages.
      const alone = ["--nodeps", "--noscripts"];
      rpm("-i", ...alone, await buildRpmPackage(options));
      expect(execFileSync(join(fs, "usr/bin/millpond"), ["version"], { encoding: "utf8" })).toBe("version\n");
      const configuration = join(fs, "etc/millpond/controller.yaml");
      writeFileSync(configuration, "listen: 0.0.0.0:7170\n");
      writeFileSync(join(fs, "etc/millpond/agent.yaml"), "controller: https://c:7170\n");
      rpm("-U", ...alone, await buildRpmPackage({ ...options, version: "1.2.4" }));
      expect(readFileSync(configuration, "utf8")).toBe("listen: 0.0.0.0:7170\n");
      expect(rpm("-q", "millpond")).toBe("millpond-1.2.4-1.x86_64\n");
      rpm("-e", ...alone, "millpond");
      expect(existsSync(join(fs, "usr/bin/millpond"))).toBe(false);
      // RPM keeps configuration that was changed, under another name.
      expect(filesOf(join(fs, "etc"))).toEqual(["/millpond/agent.yaml", "/millpond/controller.yaml.rpmsave"]);
      rmSync(join(fs, "etc"), { recursive: true });
      const ofOthers =
        /^(usr|usr\/(bin|lib|share)|usr\/share\/(doc|man|man\/man1)|usr\/lib\/(systemd|sysusers\.d)|usr\/lib\/systemd\/system)$/;
      const left = readdirSync(fs, { recursive: true }).map(String);
      expect(left.filter((path) => !path.startsWith("var") && !ofOthers.test(path))).toEqual([]);
    },
  );
});
