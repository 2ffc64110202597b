// SPDX-License-Identifier: Apache-2.0

// Detects the files of a folder that list pods or nodes: by their columns, whatever their names.

import { open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { millpondError, quote } from "@millpond/api";
import { readable } from "./readable.ts";

/** Alibaba's file name. */
const gpuNodeFile = "openb_node_list_gpu_node.csv";
const allNodeFile = "openb_node_list_all_node.csv";
const podPrefix = "openb_pod_list_";

export interface Tables {
  /** Files of lists of pods, by the name of the trace. */
  readonly pods: ReadonlyMap<string, string>;
  /** Files of lists of nodes, sorted. */
  readonly nodes: readonly string[];
}

/** The name of the trace in a file. */
export function traceNameOf(file: string): string {
  return file.replace(/\.csv$/, "").replace(podPrefix, "");
}

/** @throws MILLPOND_E_NOT_FOUND when the folder cannot be read; MILLPOND_E_INVALID when two files have one name */
export async function tablesIn(folder: string): Promise<Tables> {
  const pods = new Map<string, string>();
  const nodes: string[] = [];
  const entries = await readable(folder, () => readdir(folder, { withFileTypes: true }));
  const files = entries.filter((entry) => !entry.isDirectory()).map(({ name }) => name);
  for (const file of files.filter((each) => each.endsWith(".csv")).sort()) {
    const kind = await kindOf(folder, file);
    if (kind === "nodes") {
      nodes.push(file);
    } else if (kind === "pods") {
      const name = traceNameOf(file);
      const other = pods.get(name);
      if (other !== undefined) {
        throw millpondError(
          "MILLPOND_E_INVALID",
          `${other} and ${file} in ${quote(folder)} are both the trace ${name}`,
        );
      }
      pods.set(name, file);
    }
  }
  return { pods, nodes };
}

/**
 * The list of nodes with GPUs, and the list of those without.
 *
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_INVALID when they are ambiguous
 */
export function nodeFilesOf(
  { nodes }: Tables,
  folder: string,
): { readonly withGpus: string; readonly withoutGpus: string } {
  const [only, ...more] = nodes;
  if (only === undefined) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `no list of nodes in ${quote(folder)}`, {
      remedy: `Put ${gpuNodeFile} there, or another CSV file with the columns cpu_milli, memory_mib, gpu and model.`,
    });
  }
  const named = [gpuNodeFile, allNodeFile].find((file) => nodes.includes(file));
  if (named === undefined && more.length > 0) {
    throw millpondError("MILLPOND_E_INVALID", `${nodes.join(" and ")} in ${quote(folder)} both list nodes`, {
      remedy: `Call the one that is meant ${gpuNodeFile}.`,
    });
  }
  const withGpus = named ?? only;
  return { withGpus, withoutGpus: nodes.includes(allNodeFile) ? allNodeFile : withGpus };
}

/** Alibaba's file names count as well, so that a broken file is refused and not overlooked. */
async function kindOf(folder: string, file: string): Promise<"pods" | "nodes" | "other"> {
  if (file.startsWith(podPrefix)) {
    return "pods";
  }
  if (file === gpuNodeFile || file === allNodeFile) {
    return "nodes";
  }
  const columns = await columnsOf(join(folder, file));
  if (columns.includes("num_gpu") && columns.includes("gpu_milli")) {
    return "pods";
  }
  return columns.includes("gpu") && columns.includes("cpu_milli") ? "nodes" : "other";
}

/** Longer than any line of column names. */
const headerBytes = 4096;

/** The columns named by the first line of a file, if any. */
async function columnsOf(path: string): Promise<string[]> {
  const start = await readable(path, async () => {
    await using handle = await open(path);
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(headerBytes), 0, headerBytes, 0);
    return buffer.toString("utf8", 0, bytesRead);
  });
  const [first = ""] = start.replace(/^\uFEFF/, "").split(/\r?\n/, 1);
  return first.split(",").map((name) => name.trim().replace(/^"(.*)"$/, "$1"));
}
