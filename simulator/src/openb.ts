// SPDX-License-Identifier: Apache-2.0

// Reads traces in the form of Alibaba's cluster-trace-gpu-v2023 ("openb").

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { millpondError } from "@millpond/api";
import { anyModel, maxModels, type Shape, wholeMilli } from "@millpond/scheduler";
import { invalid, parseCsv, type Row } from "./csv.ts";
import { readable } from "./readable.ts";
import type { Trace, TraceNode } from "./trace.ts";

const gpuNodeFile = "openb_node_list_gpu_node.csv";
const allNodeFile = "openb_node_list_all_node.csv";
const podFile = /^openb_pod_list_([\w-]+)\.csv$/;

const most = { cpuMilli: 100_000_000, memoryMiB: 1_000_000_000, gpus: 64 } as const;

/** Names of the traces of this form in a folder, sorted. */
export async function listOpenbTraces(folder: string): Promise<string[]> {
  const files = await readable(folder, () => readdir(folder));
  return files.flatMap((file) => podFile.exec(file)?.[1] ?? []).sort();
}

/** @throws MILLPOND_E_INVALID, MILLPOND_E_NOT_FOUND naming the file, and the line where there is one */
export async function readOpenbTrace(folder: string, name: string): Promise<Trace> {
  const models: string[] = [];
  const nodes = (await readTable(folder, gpuNodeFile)).map((row) => toNode(row, gpuNodeFile, models));
  if (nodes.length === 0 || nodes.some(({ gpus }) => gpus === 0)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${gpuNodeFile}: every node must have GPUs, and there must be one`,
    );
  }
  const podTable = `openb_pod_list_${name}.csv`;
  const shapes = new Map<string, Shape>();
  const pods = (await readTable(folder, podTable)).map((row) => {
    const shape = toShape(row, podTable, models);
    const key = JSON.stringify(shape);
    const known = shapes.get(key) ?? shape;
    shapes.set(key, known);
    return known;
  });
  if (pods.every(({ gpus }) => gpus === 0)) {
    throw millpondError("MILLPOND_E_INVALID", `${podTable}: no pod asks for a GPU`);
  }
  return { name, nodes, cpuNodes: await readCpuNodes(folder), pods, models };
}

/** Only pooled claims need them: a folder may lack the list. */
async function readCpuNodes(folder: string): Promise<TraceNode[]> {
  if (!(await readable(folder, () => readdir(folder))).includes(allNodeFile)) {
    return [];
  }
  const rows = await readTable(folder, allNodeFile);
  return rows.map((row) => toNode(row, allNodeFile, [])).filter(({ gpus }) => gpus === 0);
}

function toNode(row: Row, file: string, models: string[]): TraceNode {
  const gpus = row.number("gpu", most.gpus);
  const model = row.text("model");
  if (gpus > 0 && model === "") {
    throw invalid(file, row.line, "the node has GPUs of no model");
  }
  return {
    cpuMilli: row.number("cpu_milli", most.cpuMilli),
    memoryMiB: row.number("memory_mib", most.memoryMiB),
    gpus,
    model: gpus === 0 ? -1 : indexOfModel(models, model, file, row.line),
  };
}

function indexOfModel(models: string[], model: string, file: string, line: number): number {
  const known = models.indexOf(model);
  if (known >= 0) {
    return known;
  }
  if (models.length === maxModels) {
    throw invalid(file, line, `more than ${maxModels} models of GPU`);
  }
  return models.push(model) - 1;
}

function toShape(row: Row, file: string, models: readonly string[]): Shape {
  const gpus = row.number("num_gpu", most.gpus);
  const gpuMilli = row.number("gpu_milli", wholeMilli);
  if (gpus > 0 && (gpuMilli === 0 || (gpuMilli < wholeMilli && gpus > 1))) {
    throw invalid(
      file,
      row.line,
      `${gpus} GPUs with gpu_milli ${gpuMilli}: only one GPU can be shared, and not by 0`,
    );
  }
  const wanted = (row.optionalText("gpu_spec") ?? "").split("|").filter((model) => model !== "");
  return {
    cpuMilli: row.number("cpu_milli", most.cpuMilli),
    memoryMiB: row.number("memory_mib", most.memoryMiB),
    gpus,
    gpuMilli: gpus === 0 ? 0 : gpuMilli,
    models:
      gpus === 0 || wanted.length === 0
        ? anyModel
        : wanted.reduce(
            (mask, model) => (models.includes(model) ? mask | (1 << models.indexOf(model)) : mask),
            0,
          ),
  };
}

async function readTable(folder: string, file: string): Promise<Row[]> {
  const path = join(folder, file);
  return parseCsv(await readable(path, () => readFile(path, "utf8")), file);
}
