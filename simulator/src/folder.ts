// SPDX-License-Identifier: Apache-2.0

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { readOpenbTrace } from "./openb.ts";
import { parsePoolExport } from "./pool-export.ts";
import { readable } from "./readable.ts";
import { tablesIn, traceNameOf } from "./tables.ts";
import type { Trace } from "./trace.ts";

const exportFile = /^([\w.-]+)\.pool\.json$/;

/** Names of the traces in a folder, in either format, sorted. */
export async function listTraces(folder: string): Promise<string[]> {
  const files = await readable(folder, () => readdir(folder));
  const exports = files.flatMap((file) => exportFile.exec(file)?.[1] ?? []);
  return [...new Set([...(await tablesIn(folder)).pods.keys(), ...exports])].sort();
}

/**
 * Reads a list of pods with the nodes beside it, or the export `NAME.pool.json`. The name of the file is accepted too.
 *
 * @throws MILLPOND_E_NOT_FOUND listing the available names; MILLPOND_E_INVALID naming the file and the position in it
 */
export async function readTrace(folder: string, given: string): Promise<Trace> {
  const name = traceNameOf(given.replace(/\.pool\.json$/, ""));
  const names = await listTraces(folder);
  if (!names.includes(name)) {
    const there = names.length === 0 ? "there is none in it" : `there are ${names.join(", ")}`;
    throw millpondError("MILLPOND_E_NOT_FOUND", `no trace ${quote(name)} in ${quote(folder)}: ${there}`, {
      remedy: "Name one of them with --trace, or another folder with --data.",
    });
  }
  const tables = await tablesIn(folder);
  const file = tables.pods.get(name);
  if (file !== undefined) {
    return readOpenbTrace(folder, name, { file, tables });
  }
  const path = join(folder, `${name}.pool.json`);
  return parsePoolExport(await readable(path, () => readFile(path, "utf8")), path, name);
}
