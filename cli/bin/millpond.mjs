#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0

// Starts millpond. Plain JavaScript for the oldest Node that may be installed: where that is too old to run Millpond,
// the Node that npm installed beside it takes over.

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const neededMajor = 24;

if (Number(process.versions.node.split(".")[0]) >= neededMajor) {
  const { enableCompileCache } = await import("node:module");
  enableCompileCache();
  const { main } = await import("../src/main.ts");
  process.exitCode = await main(process.argv.slice(2));
} else {
  const self = fileURLToPath(import.meta.url);
  const newer = findNode(dirname(self));
  if (newer === undefined) {
    process.stderr.write(
      `error: Millpond needs Node ${neededMajor} or later, and this is Node ${process.versions.node}\n` +
        "  Run `npm ci` in Millpond's directory, which installs one beside it, or install a newer Node.\n" +
        "  [MILLPOND_E_VERSION]\n",
    );
    process.exitCode = 125;
  } else if (typeof process.execve === "function") {
    process.execve(newer, [newer, ...process.execArgv, self, ...process.argv.slice(2)], process.env);
  } else {
    runOn(newer, self);
  }
}

/** The Node that npm installed for this platform, in the node_modules of this directory or of one above it. */
function findNode(directory) {
  for (let place = directory; ; place = dirname(place)) {
    const candidate = join(place, "node_modules", `node-${process.platform}-${process.arch}`, "bin", "node");
    if (existsSync(candidate)) return candidate;
    if (place === dirname(place)) return undefined;
  }
}

/** Runs this same command on another Node, and forwards signals and the exit status. */
function runOn(node, self) {
  const child = spawn(node, [self, ...process.argv.slice(2)], { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"]) {
    process.on(signal, () => {
      // The terminal sends a key's signal to the whole foreground process group, including the child.
      if (!((signal === "SIGINT" || signal === "SIGQUIT") && isForeground())) child.kill(signal);
    });
  }
  child.on("error", (error) => {
    process.stderr.write(`error: ${node} cannot be started: ${error.message}\n  Run \`npm ci\` again.\n`);
    process.exitCode = 125;
  });
  child.on("exit", (code, signal) => {
    process.exitCode = signal === null ? code : 128 + constants.signals[signal];
  });
}

function isForeground() {
  try {
    const stat = readFileSync("/proc/self/stat", "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[2] === fields[5];
  } catch {
    return false;
  }
}
