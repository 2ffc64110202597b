// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { entry } from "../../../test/entry.ts";
import type { Summary } from "../../trace/summary.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "millpond-trace-"));
});
afterAll(() => rm(folder, { recursive: true }));

async function trace(
  ...args: readonly string[]
): Promise<{ status: number; stdout: string; stderr: string }> {
  try {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [entry, "trace", ...args], {
      cwd: folder,
    });
    return { status: 0, stdout, stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { status: code, stdout, stderr };
  }
}

async function summaryOf(...files: readonly string[]): Promise<Summary> {
  const { status, stdout, stderr } = await trace(...files, "-o", "json");
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  return JSON.parse(stdout) as Summary;
}

async function write(name: string, lines: readonly string[], end = "\n"): Promise<string> {
  await writeFile(join(folder, name), lines.join("\n") + end);
  return name;
}

const header = "# millpond trace 1, process 10, started 2026-01-30T10:00:00.000000Z, program ./train --fast";
const lines = [
  header,
  "0.000 +1000.000 10/10 cuInit(Flags=0x0) = CUDA_SUCCESS; waits 2",
  "1500.000 +10.000 10/10 cuMemcpyHtoD_v2(dstDevice=0x10, srcHost=0x20, ByteCount=4096) = CUDA_SUCCESS",
  "1520.000 +30.000 10/11 cuMemcpyDtoHAsync_v2_ptsz(dstHost=0x20, srcDevice=0x10, ByteCount=100, hStream=default) = CUDA_SUCCESS; waits 1",
  "1600.000 +50.000 10/11 cuMemcpyDtoHAsync_v2_ptsz(dstHost=0x20, srcDevice=0x10, ByteCount=100, hStream=default) = CUDA_SUCCESS; waits 1",
  "1700.000 +1.000 10/10 cuMemcpy2D_v2(pCopy=&{srcMemoryType=CU_MEMORYTYPE_ARRAY, dstMemoryType=CU_MEMORYTYPE_HOST, WidthInBytes=10, Height=3}) = CUDA_SUCCESS",
  '1800.000 +0.500 10/10 cuLaunchKernel(f=0x1 "add", gridDimX=1, ...) = CUDA_SUCCESS',
  '1801.000 +0.500 10/10 cuLaunchKernel_ptsz(f=0x1 "add", gridDimX=1, ...) = CUDA_SUCCESS',
  '1802.000 +0.500 10/10 cuLaunchKernel(f=0x2 "mul", gridDimX=0, ...) = CUDA_ERROR_INVALID_VALUE',
  "1803.000 +0.500 10/10 cuStreamQuery(hStream=0x30) = CUDA_ERROR_NOT_READY; waits 1",
  "9804.000 +1.000 10/10 cuCtxSynchronize() = CUDA_ERROR_ILLEGAL_ADDRESS; waits 1; of an earlier call",
];

test("calls, waits, copies, launches, failures and the time between calls", async () => {
  const summary = await summaryOf(await write("calls", lines));
  expect(summary).toMatchObject({ apiVersion: "millpond.v1", kind: "TraceSummary" });
  expect(summary.files).toEqual([{ file: "calls", calls: 10, isCut: false }]);
  expect(summary.processes).toEqual([
    {
      file: "calls",
      process: 10,
      started: "2026-01-30T10:00:00.000000Z",
      program: "./train --fast",
      calls: 10,
    },
  ]);
  expect(summary.threads).toEqual([
    { process: 10, thread: 10, calls: 8, span: 9805, inCalls: 1014, inWaits: 1001.5 },
    { process: 10, thread: 11, calls: 2, span: 130, inCalls: 80, inWaits: 80 },
  ]);
  expect(summary.calls.map(({ name }) => name).slice(0, 3)).toEqual([
    "cuInit",
    "cuMemcpyDtoHAsync_v2_ptsz",
    "cuMemcpyHtoD_v2",
  ]);
  expect(summary.calls[1]).toEqual({
    name: "cuMemcpyDtoHAsync_v2_ptsz",
    count: 2,
    total: 80,
    mean: 40,
    p50: 30,
    p99: 50,
    max: 50,
    waits: 2,
    errors: 0,
  });
  expect(summary.calls.find(({ name }) => name === "cuStreamQuery")?.errors).toBe(0);
  expect(summary.copies).toEqual([
    { from: "host", to: "device", count: 1, bytes: 4096, total: 10 },
    { from: "device", to: "host", count: 3, bytes: 230, total: 81 },
  ]);
  expect(summary.launches).toEqual([{ kernel: "add", count: 2, total: 1 }]);
  expect(summary.failedCalls).toBe(2);
  expect(summary.failures).toEqual([
    {
      file: "calls",
      line: 9,
      name: "cuLaunchKernel",
      result: "CUDA_ERROR_INVALID_VALUE",
      isEarlierFailure: false,
      text: lines[8],
    },
    {
      file: "calls",
      line: 11,
      name: "cuCtxSynchronize",
      result: "CUDA_ERROR_ILLEGAL_ADDRESS",
      isEarlierFailure: true,
      text: lines[10],
    },
  ]);
  expect(summary.gaps[0]).toEqual({
    file: "calls",
    line: 11,
    process: 10,
    thread: 10,
    time: 8000.5,
    after: "cuStreamQuery",
    before: "cuCtxSynchronize",
  });
});

test("the table says the same", async () => {
  const { status, stdout, stderr } = await trace(await write("calls", lines));
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toMatch(/^process 10, \.\/train --fast: 10 calls from 2026/);
  expect(stdout).toMatch(/^10\/10 +8 +9\.8 ms +1\.0 ms +1\.0 ms +8\.8 ms$/m);
  expect(stdout).toMatch(/^cuInit +1 +1\.0 ms +1\.0 ms +1\.0 ms +1\.0 ms +1\.0 ms +2 +0$/m);
  expect(stdout).toMatch(/^host to device +1 +4096 B +10\.0 µs$/m);
  expect(stdout).toMatch(/^add +2 +1\.0 µs$/m);
  expect(stdout).toMatch(/^8\.0 ms +10\/10 +cuStreamQuery +cuCtxSynchronize +calls:11$/m);
  expect(stdout).toContain(`calls:9: ${lines[8]}`);
  expect(stdout).toContain("MILLPOND_SYNC=1");
});

test("several files are one summary, and a process that comes again is another one", async () => {
  const other = [
    "# millpond trace 1, process 10, started 2026-01-30T11:00:00.000000Z, program ./again",
    "0.000 +1.000 10/10 cuInit(Flags=0x0) = CUDA_SUCCESS",
  ];
  const summary = await summaryOf(
    await write("twice", [...lines, ...other]),
    await write("once", [
      header.replace("process 10", "process 20"),
      "5.000 +1.000 20/20 cuInit() = CUDA_SUCCESS",
    ]),
  );
  expect(summary.processes.map(({ file, process, calls }) => [file, process, calls])).toEqual([
    ["twice", 10, 10],
    ["twice", 10, 1],
    ["once", 20, 1],
  ]);
  expect(summary.threads).toHaveLength(4);
  expect(summary.calls.find(({ name }) => name === "cuInit")?.count).toBe(3);
});

test("a last line without an end is left out, and that is said", async () => {
  const file = await write("killed", [...lines.slice(0, 3), "1520.000 +30.000 10/11 cuMemcpyDtoH"], "");
  const { status, stdout, stderr } = await trace(file, "-o", "json");
  expect(status).toBe(0);
  expect(stderr).toBe("millpond: killed: the last line has no end: the program was killed, or is running\n");
  expect((JSON.parse(stdout) as Summary).files).toEqual([{ file: "killed", calls: 2, isCut: true }]);
});

test.each([
  ["a line that is none", [...lines, "what?"], 'bad:12: "what?" is not a line of a trace'],
  ["no header", lines.slice(1), "bad:1: there is no header of process 10 before its calls"],
  ["a header of nothing", ["# hello"], 'bad:1: "# hello" is not a line of a trace'],
  [
    "a version to come",
    [header.replace("trace 1", "trace 2")],
    "bad:1: this is a trace of version 2, and version 1 is known here",
  ],
])("%s is an error with the number of the line", async (_, content, message) => {
  const { status, stdout, stderr } = await trace(await write("bad", content));
  expect({ status, stdout }).toEqual({ status: 118, stdout: "" });
  expect(stderr).toContain(`error: ${message}\n`);
  expect(stderr).toContain("[MILLPOND_E_INVALID]");
});

test("a file that is not there, one that is no text, an empty one", async () => {
  expect((await trace("nowhere")).stderr).toContain('error: the trace "nowhere" cannot be read: ENOENT');
  await writeFile(join(folder, "binary"), Buffer.alloc(300_000, 0x41));
  expect((await trace("binary")).stderr).toMatch(/error: binary:1: "A+…" is not a line of a trace/);
  expect(await trace(await write("empty", [], ""))).toMatchObject({
    status: 0,
    stdout: "no process\n\nno calls\n",
  });
});
