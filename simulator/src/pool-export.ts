// SPDX-License-Identifier: Apache-2.0

// The format of `millpond snapshot` for a live pool, which the simulator replays: NAME.pool.json.

import { millpondError } from "@millpond/api";
import { anyModel, maxModels, type Shape, wholeMilli } from "@millpond/scheduler";
import type { Trace, TraceNode } from "./trace.ts";

export interface PoolExport {
  readonly format: "millpond-pool";
  readonly version: 1;
  /** Time of the export, as ISO 8601 with a zone. */
  readonly takenAt: string;
  readonly nodes: readonly ExportedNode[];
  /** Bound and waiting claims, in order of creation. */
  readonly claims: readonly ExportedClaim[];
}

export interface ExportedNode {
  readonly name: string;
  /** Absent: unknown; CPU is then not counted on this node. */
  readonly cpuMilli?: number;
  readonly memoryMiB?: number;
  readonly devices: readonly { readonly model: string; readonly memoryMiB: number }[];
}

export interface ExportedClaim {
  readonly name: string;
  /** 1 to 64. */
  readonly gpus: number;
  /** Memory of each vGPU; 0 and no `memoryPercent`: the whole device. */
  readonly memoryMiB: number;
  /** Memory of each vGPU in percent, 1 to 100; 0: see `memoryMiB`. */
  readonly memoryPercent: number;
  /** Compute of each vGPU, 1 to 100; 0: in proportion to the memory. */
  readonly computePercent: number;
  /** Substrings of model names, any of which matches. Absent: every model. */
  readonly models?: readonly string[];
  /** CPU and memory of the host; absent: unknown. */
  readonly cpuMilli?: number;
  readonly hostMemoryMiB?: number;
}

/** More than any node has, and small enough to stay exact. */
const maxQuantity = 1_000_000_000;

/**
 * @param file its name, for errors
 * @throws MILLPOND_E_INVALID naming the file and the member
 */
export function parsePoolExport(text: string, file: string, name: string): Trace {
  const reader = new Reader(file);
  const root = reader.object(reader.json(text), "the file");
  if (root["format"] !== "millpond-pool" || root["version"] !== 1) {
    throw reader.invalid("it is not an export of a pool of version 1 (format, version)");
  }
  const models: string[] = [];
  const smallest = new Map<number, number>();
  const nodes: TraceNode[] = [];
  const cpuNodes: TraceNode[] = [];
  for (const [position, each] of reader.list(root["nodes"], "nodes").entries()) {
    const where = `nodes[${position}]`;
    const node = reader.object(each, where);
    const devices = reader.list(node["devices"], `${where}.devices`).map((item, index) => {
      const device = reader.object(item, `${where}.devices[${index}]`);
      return {
        model: reader.text(device["model"], `${where}.devices[${index}].model`),
        memoryMiB: reader.number(device["memoryMiB"], `${where}.devices[${index}].memoryMiB`, 1, maxQuantity),
      };
    });
    const cpuMilli = reader.optionalNumber(node["cpuMilli"], `${where}.cpuMilli`, Number.POSITIVE_INFINITY);
    const memoryMiB = reader.optionalNumber(
      node["memoryMiB"],
      `${where}.memoryMiB`,
      Number.POSITIVE_INFINITY,
    );
    if (devices.length === 0) {
      cpuNodes.push({ cpuMilli, memoryMiB, gpus: 0, model: -1 });
    }
    // A node with several models counts as one node for each, because the vGPUs of a claim are of one model in a trace.
    for (const model of new Set(devices.map((device) => device.model))) {
      const alike = devices.filter((device) => device.model === model);
      const index = models.includes(model) ? models.indexOf(model) : models.push(model) - 1;
      if (models.length > maxModels) {
        throw reader.invalid(`more than ${maxModels} models of GPU`);
      }
      nodes.push({ cpuMilli, memoryMiB, gpus: alike.length, model: index });
      const least = Math.min(...alike.map((device) => device.memoryMiB));
      smallest.set(index, Math.min(smallest.get(index) ?? least, least));
    }
  }
  const shapes = new Map<string, Shape>();
  const pods = reader.list(root["claims"], "claims").map((each, position) => {
    const shape = toShape(
      reader,
      reader.object(each, `claims[${position}]`),
      `claims[${position}]`,
      models,
      smallest,
    );
    const key = JSON.stringify(shape);
    const known = shapes.get(key) ?? shape;
    shapes.set(key, known);
    return known;
  });
  if (nodes.length === 0 || pods.length === 0) {
    throw reader.invalid("there is no node with GPUs or no claim in it");
  }
  return { name, nodes, cpuNodes, pods, models };
}

function toShape(
  reader: Reader,
  claim: Record<string, unknown>,
  where: string,
  models: readonly string[],
  smallest: ReadonlyMap<number, number>,
): Shape {
  const number = (member: string, least: number, most: number): number =>
    reader.number(claim[member], `${where}.${member}`, least, most);
  const wanted = claim["models"] === undefined ? undefined : reader.list(claim["models"], `${where}.models`);
  const parts = wanted?.map((part) => reader.text(part, `${where}.models`).toLowerCase());
  const matching = models.flatMap((model, index) =>
    parts === undefined || parts.some((part) => model.toLowerCase().includes(part)) ? index : [],
  );
  const memoryMiB = number("memoryMiB", 0, maxQuantity);
  const memoryPercent = number("memoryPercent", 0, 100);
  const computePercent = number("computePercent", 0, 100);
  // A size in MiB is a different share on each model: the smallest device that can hold it determines the share.
  const sizes = matching.map((index) => smallest.get(index) ?? 0).filter((size) => size >= memoryMiB);
  const device = sizes.length === 0 ? memoryMiB : Math.min(...sizes);
  const isWhole = memoryMiB === 0 && memoryPercent === 0;
  const memoryMilli = isWhole
    ? wholeMilli
    : memoryPercent * 10 || Math.ceil((memoryMiB * wholeMilli) / device);
  return {
    cpuMilli: reader.optionalNumber(claim["cpuMilli"], `${where}.cpuMilli`, 0),
    memoryMiB: reader.optionalNumber(claim["hostMemoryMiB"], `${where}.hostMemoryMiB`, 0),
    gpus: number("gpus", 1, 64),
    gpuMilli: Math.min(wholeMilli, Math.max(memoryMilli, computePercent * 10)),
    models: parts === undefined ? anyModel : matching.reduce((mask, index) => mask | (1 << index), 0),
  };
}

class Reader {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  invalid(what: string): Error {
    return millpondError("MILLPOND_E_INVALID", `${this.#file}: ${what}`);
  }

  json(text: string): unknown {
    try {
      return JSON.parse(text) as unknown;
    } catch (error) {
      throw this.invalid(`it is not JSON: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  object(value: unknown, where: string): Record<string, unknown> {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw this.invalid(`${where} is not an object`);
    }
    return value as Record<string, unknown>;
  }

  list(value: unknown, where: string): readonly unknown[] {
    if (!Array.isArray(value)) {
      throw this.invalid(`${where} is not a list`);
    }
    return value as unknown[];
  }

  text(value: unknown, where: string): string {
    if (typeof value !== "string" || value === "" || value.length > 256) {
      throw this.invalid(`${where} is not a text of 1 to 256 characters`);
    }
    return value;
  }

  number(value: unknown, where: string, least: number, most: number): number {
    if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) {
      throw this.invalid(`${where} is not a whole number from ${least} to ${most}`);
    }
    return value;
  }

  optionalNumber(value: unknown, where: string, absent: number): number {
    return value === undefined ? absent : this.number(value, where, 0, maxQuantity);
  }
}
