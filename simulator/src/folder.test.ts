// SPDX-License-Identifier: Apache-2.0

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { anyModel } from "@millpond/scheduler";
import * as fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseCsv } from "./csv.ts";
import { listTraces, readTrace } from "./folder.ts";
import { parsePoolExport } from "./pool-export.ts";

const nodeHeader = "sn,cpu_milli,memory_mib,gpu,model";
const podHeader = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase";
const goodNodes = `${nodeHeader}\nn0,64000,262144,2,P100\nn1,96000,393216,8,G2\n`;

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "millpond-trace-"));
  await write("openb_node_list_gpu_node.csv", goodNodes);
});

afterEach(() => rm(folder, { recursive: true }));

function write(file: string, text: string): Promise<void> {
  return writeFile(join(folder, file), text);
}

test("a folder's traces are those of both forms", async () => {
  await write("openb_pod_list_b.csv", `${podHeader}\n`);
  await write("a.pool.json", "{}");
  await write("other.csv", "");
  await mkdir(join(folder, "folder.csv"));
  expect(await listTraces(folder)).toEqual(["a", "b"]);
});

test("nodes and pods are read, with alternatives of models and lists without that column", async () => {
  await write("openb_node_list_all_node.csv", `${nodeHeader}\nn0,64000,262144,2,P100\nc0,32000,1024,0,\n`);
  await write(
    "openb_pod_list_x.csv",
    `${podHeader}\r\np0,8000,1024,1,470,G2|P100,LS,Running\r\np1,4000,0,0,0,,BE,Running\r\np2,1000,0,8,1000,A100,LS,Running\r\n`,
  );
  const trace = await readTrace(folder, "x");
  expect(trace.models).toEqual(["P100", "G2"]);
  expect(trace.cpuNodes).toEqual([{ cpuMilli: 32_000, memoryMiB: 1024, gpus: 0, model: -1 }]);
  expect(trace.pods).toEqual([
    { cpuMilli: 8000, memoryMiB: 1024, gpus: 1, gpuMilli: 470, models: 0b11 },
    { cpuMilli: 4000, memoryMiB: 0, gpus: 0, gpuMilli: 0, models: anyModel },
    { cpuMilli: 1000, memoryMiB: 0, gpus: 8, gpuMilli: 1000, models: 0 },
  ]);
  await write("openb_pod_list_y.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,1,1000\n");
  expect((await readTrace(folder, "y")).pods[0]?.models).toBe(anyModel);
});

test.each([
  ["no pod asks for a GPU", "p0,1,1,0,0,,LS,R"],
  ["line 2: num_gpu is", "p0,1,1,-1,1000,,LS,R"],
  ["line 2: cpu_milli is", "p0,1e3,1,1,1000,,LS,R"],
  ["line 2: gpu_milli is", "p0,1,1,1,1001,,LS,R"],
  ["line 2: 2 GPUs with gpu_milli 500", "p0,1,1,2,500,,LS,R"],
  ["line 2: 1 GPU with gpu_milli 0", "p0,1,1,1,0,,LS,R"],
  ["line 3: 3 values for 8 columns", "p0,1,1,1,1000,,LS,R\np1,1,1"],
  ["line 2: a quote does not", '"p0,1,1,1,1000,,LS,R'],
  ["line 2: a quote does not", 'p"0",1,1,1,1000,,LS,R'],
])("a bad list of pods is refused: %s", async (message, rows) => {
  await write("openb_pod_list_x.csv", `${podHeader}\n${rows}\n`);
  await expect(readTrace(folder, "x")).rejects.toThrow(message);
});

test("a missing column, a bad header and nodes without GPUs are refused by name", async () => {
  await write("openb_pod_list_x.csv", "name,cpu_milli,memory_mib,num_gpu\np0,1,1,1\n");
  await expect(readTrace(folder, "x")).rejects.toThrow("there is no column gpu_milli");
  await write("openb_pod_list_x.csv", "\n");
  await expect(readTrace(folder, "x")).rejects.toThrow("does not name columns");
  await write("openb_node_list_gpu_node.csv", `${nodeHeader}\nn0,64000,262144,0,\n`);
  await expect(readTrace(folder, "x")).rejects.toThrow("no node has GPUs");
  await expect(readTrace(folder, "z")).rejects.toThrow("there are x");
  await expect(readTrace(join(folder, "gone"), "x")).rejects.toThrow("ENOENT");
});

test("quotes, blank lines, other orders, columns of no interest, fractions and what is empty are read", async () => {
  await write(
    "openb_node_list_gpu_node.csv",
    `\uFEFFmodel,"gpu",memory_mib,cpu_milli,sn\r\nP100,2,262144,64000,n0\r\n`,
  );
  await write(
    "openb_pod_list_x.csv",
    [
      ',gpu_spec,gpu_milli,num_gpu,memory_mib,cpu_milli,"name, and more",qos',
      '0,"P100 | G2",470,1,1024,"8000","p ""0"", of x",LS',
      "",
      "1,,,0,1.4,2500.5,p1,LS",
      "",
    ].join("\r\n"),
  );
  const { nodes, pods } = await readTrace(folder, "x");
  expect(nodes).toEqual([{ cpuMilli: 64_000, memoryMiB: 262_144, gpus: 2, model: 0 }]);
  expect(pods).toEqual([
    { cpuMilli: 8000, memoryMiB: 1024, gpus: 1, gpuMilli: 470, models: 0b1 },
    { cpuMilli: 2501, memoryMiB: 1, gpus: 0, gpuMilli: 0, models: anyModel },
  ]);
});

test("files are known by their columns, whatever they are called", async () => {
  await rm(join(folder, "openb_node_list_gpu_node.csv"));
  const pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,1,1000\n";
  await write("week 1.2.csv", pods);
  await write("notes.csv", "a note without columns");
  expect(await listTraces(folder)).toEqual(["week 1.2"]);
  await expect(readTrace(folder, "week 1.2")).rejects.toThrow("no list of nodes");
  await write("machines.csv", "sn,cpu_milli,memory_mib,gpu\nn0,64000,262144,2\nn1,64000,262144,0\n");
  const trace = await readTrace(folder, "week 1.2.csv");
  expect([trace.nodes.length, trace.cpuNodes.length, trace.pods.length]).toEqual([1, 1, 1]);
  await write("others.csv", goodNodes);
  await expect(readTrace(folder, "week 1.2")).rejects.toThrow("machines.csv and others.csv");
  await write("openb_node_list_all_node.csv", goodNodes);
  expect((await readTrace(folder, "week 1.2")).nodes).toHaveLength(2);
  await write("openb_pod_list_week 1.2.csv", pods);
  await expect(readTrace(folder, "week 1.2")).rejects.toThrow("are both the trace week 1.2");
});

test("whatever is in a file, it is read or refused by name", () => {
  const cells = fc.array(fc.string({ maxLength: 8 }), { maxLength: 8 }).map((row) => row.join(","));
  fc.assert(
    fc.property(fc.array(fc.oneof(cells, fc.constant(nodeHeader)), { maxLength: 6 }), (lines) => {
      try {
        for (const row of parseCsv(lines.join("\n"), "file.csv")) {
          row.number("gpu", 64);
        }
      } catch (error) {
        expect(String(error)).toMatch(/file\.csv, line \d+: .*MILLPOND_E_INVALID/s);
      }
    }),
  );
  fc.assert(
    fc.property(fc.oneof(fc.json(), fc.string()), (text) => {
      expect(() => parsePoolExport(text, "a.pool.json", "a")).toThrow(/a\.pool\.json: .*MILLPOND_E_INVALID/s);
    }),
  );
});

test("an export of a pool is a trace: shares by the smallest device that can hold them", async () => {
  const claim = { name: "c", gpus: 1, memoryMiB: 0, memoryPercent: 0, computePercent: 0 };
  await write(
    "live.pool.json",
    JSON.stringify({
      format: "millpond-pool",
      version: 1,
      takenAt: "2026-01-01T00:00:00Z",
      nodes: [
        { name: "a", devices: [{ model: "NVIDIA H200", memoryMiB: 143_360 }] },
        {
          name: "b",
          cpuMilli: 8000,
          devices: [
            { model: "Tesla T4", memoryMiB: 16_384 },
            { model: "Tesla T4", memoryMiB: 16_384 },
          ],
        },
        { name: "c", cpuMilli: 1000, devices: [] },
      ],
      claims: [
        claim,
        { ...claim, memoryMiB: 4096 },
        { ...claim, memoryMiB: 20_000, models: ["h200"] },
        { ...claim, memoryPercent: 10, computePercent: 25, gpus: 2 },
      ],
    }),
  );
  const trace = await readTrace(folder, "live");
  expect(trace.nodes.map(({ gpus, model }) => [gpus, model])).toEqual([
    [1, 0],
    [2, 1],
  ]);
  expect(trace.cpuNodes).toHaveLength(1);
  expect(trace.pods.map(({ gpus, gpuMilli, models }) => [gpus, gpuMilli, models])).toEqual([
    [1, 1000, anyModel],
    [1, 250, anyModel],
    [1, 140, 0b01],
    [2, 250, anyModel],
  ]);
});
