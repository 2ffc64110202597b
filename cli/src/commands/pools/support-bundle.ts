// SPDX-License-Identifier: Apache-2.0

import { writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { resolve } from "node:path";
import { formatBytes, millpondError, quote } from "@millpond/api";
import { exitStatus } from "../../command-table/command-table.ts";
import type { Values } from "../../command-line/command-values.ts";
import { type Connection, connect, resolveEndpoint } from "../../connection/connection.ts";
import { diagnose } from "../../doctor/diagnosis.ts";
import { userStateDirectory } from "@millpond/platform";
import { collectBundle } from "../../support/bundle.ts";
import { packArchive } from "../../support/tar.ts";

export async function run(values: Values<"support-bundle">): Promise<number> {
  const now = new Date();
  const stamp = now.toISOString().replace(/[-:]|\.\d+/g, "");
  const path = resolve(values.to ?? `millpond-support-${hostname()}-${stamp}.tar.gz`);
  const files = await collectBundle({
    environment: process.env,
    connection: connectionOf(values),
    findings: await diagnose(values, process.env),
    state: values.state ?? userStateDirectory(process.env),
  });
  const archive = packArchive(files, Math.floor(now.getTime() / 1000));
  try {
    writeFileSync(path, archive, { mode: 0o600, flag: "wx" });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw millpondError("MILLPOND_E_INVALID", `--to: ${quote(path)} cannot be written: ${why}`, {
      remedy: "Name a file that does not exist, in a folder with free disk space.",
      cause,
    });
  }
  const list = files.map((file) => `  ${file.path}\n`).join("");
  process.stdout.write(
    `${path} (${formatBytes(BigInt(archive.length))}) has\n${list}` +
      "It has no tokens, passwords and keys, but names of users, hosts and programs: look through it before you pass it on.\n",
  );
  return exitStatus.ok;
}

/** Undefined if no controller is configured; `doctor` reports why. */
function connectionOf(values: Values<"support-bundle">): Connection | undefined {
  try {
    return connect(resolveEndpoint(values, process.env));
  } catch {
    return undefined; // The diagnosis in the bundle contains this error.
  }
}
