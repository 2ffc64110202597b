// SPDX-License-Identifier: Apache-2.0

// Reads traces in the format of Alibaba's cluster-trace-gpu-v2023 ("openb").

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { countOf, millpondError } from "@millpond/api";
import { anyModel, maxModels, type Shape, wholeMilli } from "@millpond/scheduler";
import { invalid, parseCsv, type Row } from "./csv.ts";
import { readable } from "./readable.ts";
import { nodeFilesOf, type Tables } from "./tables.ts";
import type { Trace, TraceNode } from "./trace.ts";

const most = { cpuMilli: 100_000_000, memoryMiB: 1_000_000_000, gpus: 64 } as const;

/** The model of all GPUs where the list of nodes has no model column. */
const unnamedModel = "GPU";

/**
 * Reads the pods of a file, and the nodes beside it.
 *
 * @throws MILLPOND_E_INVALID, MILLPOND_E_NOT_FOUND naming the file, and the line where there is one
 */
export async function readOpenbTrace(
  folder: string,
  name: string,
  { file, tables }: { readonly file: string; readonly tables: Tables },
): Promise<Trace> {
  const models: string[] = [];
  const { withGpus, withoutGpus } = nodeFilesOf(tables, folder);
  const all = await readNodes(folder, withGpus, models);
  const nodes = all.filter(({ gpus }) => gpus > 0);
  if (nodes.length === 0) {
    throw millpondError("MILLPOND_E_INVALID", `${withGpus}: no node has GPUs`);
  }
  const shapes = new Map<string, Shape>();
  const pods = (await readTable(folder, file)).map((row) => {
    const shape = toShape(row, file, models);
    const key = JSON.stringify(shape);
    const known = shapes.get(key) ?? shape;
    shapes.set(key, known);
    return known;
  });
  if (pods.every(({ gpus }) => gpus === 0)) {
    throw millpondError("MILLPOND_E_INVALID", `${file}: no pod asks for a GPU`);
  }
  const others = withoutGpus === withGpus ? all : await readNodes(folder, withoutGpus, []);
  return { name, nodes, cpuNodes: others.filter(({ gpus }) => gpus === 0), pods, models };
}

async function readNodes(folder: string, file: string, models: string[]): Promise<TraceNode[]> {
  return (await readTable(folder, file)).map((row) => toNode(row, file, models));
}

function toNode(row: Row, file: string, models: string[]): TraceNode {
  const gpus = row.number("gpu", most.gpus);
  const model = row.optionalText("model") ?? unnamedModel;
  if (gpus > 0 && model === "") {
    throw invalid(file, row.line, "the node has GPUs of no model");
  }
  return {
    cpuMilli: row.quantity("cpu_milli", most.cpuMilli),
    memoryMiB: row.quantity("memory_mib", most.memoryMiB),
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
  const gpuMilli = gpus === 0 ? 0 : row.number("gpu_milli", wholeMilli);
  if (gpus > 0 && (gpuMilli === 0 || (gpuMilli < wholeMilli && gpus > 1))) {
    throw invalid(
      file,
      row.line,
      `${countOf(gpus, "GPU")} with gpu_milli ${gpuMilli}: only one GPU can be shared, and not by 0`,
    );
  }
  const wanted = (row.optionalText("gpu_spec") ?? "")
    .split("|")
    .map((model) => model.trim())
    .filter((model) => model !== "");
  return {
    cpuMilli: row.quantity("cpu_milli", most.cpuMilli),
    memoryMiB: row.quantity("memory_mib", most.memoryMiB),
    gpus,
    gpuMilli,
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
