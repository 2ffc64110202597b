// SPDX-License-Identifier: Apache-2.0
// The package of a small tree in place of the archive: its contents, and the files that remain after its removal.
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { commandNames, renderManPages } from "@millpond/cli";
import { buildDebianPackage } from "./debian-package.ts";
import { inRoot } from "../paths.ts";

const hasDpkg = spawnSync("dpkg-deb", ["--version"]).status === 0;
const hasVerify = spawnSync("systemd-analyze", ["--version"]).status === 0;
const isRoot = process.getuid?.() === 0;

function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "millpond-deb-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

async function build(directory: string): Promise<string> {
  const archive = join(directory, "archive");
  if (!existsSync(archive)) {
    mkdirSync(join(archive, "bench"), { recursive: true });
    writeFileSync(join(archive, "millpond"), '#!/bin/sh\necho "$@"\n');
    chmodSync(join(archive, "millpond"), 0o755);
  }
  const output = join(directory, "millpond.deb");
  const stage = join(directory, "stage");
  return await buildDebianPackage({ archive, version: "1.2.3", glibc: "2.34", stage, output });
}

/** Regular files and links below a directory. */
function filesOf(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length))
    .toSorted();
}

describe.skipIf(!hasDpkg)("the Debian package", () => {
  let root = "";
  beforeAll(async () => {
    root = mkdtempSync(join(tmpdir(), "millpond-deb-root-"));
    execFileSync("dpkg-deb", ["-x", await build(root), join(root, "fs")]);
    return () => rmSync(root, { recursive: true, force: true });
  });

  test("is the same, byte for byte, when it is made of the same", async () => {
    const directory = makeDirectory();
    const first = readFileSync(await build(directory));
    const second = readFileSync(await build(directory));
    expect(first.equals(second)).toBe(true);
  });

  test("has the command, a page of the manual for each of its commands, completions and services", () => {
    const fs = join(root, "fs");
    expect(execFileSync(join(fs, "usr/bin/millpond"), ["version"], { encoding: "utf8" })).toBe("version\n");
    for (const name of ["millpond", ...commandNames.map((command) => `millpond-${command}`)])
      expect(existsSync(join(fs, `usr/share/man/man1/${name}.1.gz`)), name).toBe(true);
    for (const file of [
      "etc/millpond/controller.yaml",
      "lib/systemd/system/millpond-controller.service",
      "lib/systemd/system/millpond-agent.service",
      "usr/lib/sysusers.d/millpond.conf",
      "usr/share/bash-completion/completions/millpond",
      "usr/share/zsh/vendor-completions/_millpond",
      "usr/share/fish/vendor_completions.d/millpond.fish",
      "usr/share/doc/millpond/docs/backup.md",
    ])
      expect(existsSync(join(fs, file)), file).toBe(true);
    expect(existsSync(join(fs, "usr/lib/millpond/bench"))).toBe(false);
    expect(statSync(join(fs, "etc/millpond/controller.yaml")).mode & 0o777).toBe(0o644);
  });

  test("has a configuration that its own command takes", () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [
        inRoot("cli", "bin", "millpond.mjs"),
        "config",
        "check",
        "controller",
        join(root, "fs/etc/millpond/controller.yaml"),
      ],
      { encoding: "utf8" },
    );
    expect({ status, stderr }, stdout).toEqual({ status: 0, stderr: "" });
  });

  test.skipIf(!hasVerify)("has units that systemd understands", () => {
    const fs = join(root, "fs");
    const units = join(fs, "lib/systemd/system");
    for (const unit of readdirSync(units)) {
      const text = readFileSync(join(units, unit), "utf8");
      // Where the package is unpacked, without being installed.
      writeFileSync(join(units, unit), text.replaceAll("/usr/bin/millpond", join(fs, "usr/bin/millpond")));
    }
    const { status, stderr } = spawnSync(
      "systemd-analyze",
      ["verify", "--man=no", ...readdirSync(units).map((unit) => join(units, unit))],
      { encoding: "utf8" },
    );
    const ours = stderr.split("\n").filter((line) => line.includes(units) || line.startsWith("millpond"));
    expect({ status, ours }).toEqual({ status: 0, ours: [] });
  });

  test.skipIf(!isRoot)("leaves nothing behind when it is purged", async () => {
    const directory = makeDirectory();
    const deb = await build(directory);
    const fs = join(directory, "fs");
    mkdirSync(join(fs, "var/lib/dpkg/info"), { recursive: true });
    mkdirSync(join(fs, "var/lib/dpkg/updates"), { recursive: true });
    writeFileSync(join(fs, "var/lib/dpkg/status"), "");
    const dpkg = (...args: string[]) =>
      execFileSync("dpkg", [`--root=${fs}`, "--force-depends", "--force-script-chrootless", ...args], {
        stdio: "pipe",
      });
    dpkg("--install", deb);
    expect(existsSync(join(fs, "usr/bin/millpond"))).toBe(true);
    // Files that `millpond join` and the services write.
    writeFileSync(join(fs, "etc/millpond/agent.yaml"), "controller: https://c:7170\n");
    mkdirSync(join(fs, "var/lib/millpond/controller"), { recursive: true });
    writeFileSync(join(fs, "var/lib/millpond/controller/controller.sqlite"), "");
    dpkg("--remove", "millpond");
    expect(existsSync(join(fs, "etc/millpond/agent.yaml"))).toBe(true);
    expect(existsSync(join(fs, "usr/bin/millpond"))).toBe(false);
    dpkg("--purge", "millpond");
    expect(filesOf(fs).filter((file) => !file.startsWith("/var/lib/dpkg/"))).toEqual([]);
  });
});

describe.skipIf(spawnSync("man", ["--version"]).status !== 0)("the manual", () => {
  test("is read by man without a warning", () => {
    const directory = makeDirectory();
    for (const { file, text } of renderManPages("1.2.3")) {
      const path = join(directory, file);
      writeFileSync(path, text);
      const { status, stdout, stderr } = spawnSync("man", ["--warnings", "-l", path], {
        encoding: "utf8",
        env: { ...process.env, MANWIDTH: "100", LC_ALL: "C.UTF-8", MANPAGER: "cat" },
      });
      expect({ file, status, stderr }).toEqual({ file, status: 0, stderr: "" });
      expect(stdout).toContain("SYNOPSIS");
    }
  });
});
