// SPDX-License-Identifier: Apache-2.0

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Profile } from "./profile.ts";
import { type ProfileEntry, readProfile } from "./records.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "millpond-profile-test-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const started = BigInt(Date.parse("2026-01-30T10:00:00Z")) * 1_000_000n;
const header = "# millpond profile 1, process 10, clock 5000, uncertainty 900";
const name = 'name\t1\t"add(int)"\t"_Z3addi"';
/** Converts a time in µs of the program's clock to the worker's, which is 5 µs ahead. */
const at = (micro: number): bigint => started + BigInt(micro) * 1000n + 5000n;
const kernel = (micro: number, correlation: number): string =>
  `k\t${at(micro)}\t${at(micro) + 2500n}\t0\t1\t7\t${correlation}\t1\t4\t1\t1\t256\t1\t1\t16\t8\t32`;
const copy = (micro: number): string => `c\t${at(micro)}\t${at(micro) + 1000n}\t0\t1\t7\t1\t1\t2\t3\t4000`;
const fill = (micro: number): string => `f\t${at(micro)}\t${at(micro)}\t1\t2\t9\t2\t255\t64`;

interface Event {
  readonly ph: string;
  readonly cat?: string;
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts?: number;
  readonly dur?: number;
  readonly id?: number;
  readonly args?: Readonly<Record<string, unknown>>;
}

async function merged(calls: readonly string[], ...devices: readonly (readonly string[])[]) {
  const file = join(folder, "profile.json");
  using profile = new Profile(file);
  if (calls.length > 0) writeFileSync(profile.callsFile, `${calls.join("\n")}\n`);
  for (const [index, lines] of devices.entries()) {
    writeFileSync(profile.deviceFiles.replace("%p", String(index)), `${lines.join("\n")}\n`);
  }
  const said = await profile.write();
  const json = JSON.parse(readFileSync(file, "utf8")) as {
    readonly traceEvents: readonly Event[];
    readonly baseTimeNanoseconds: number;
  };
  return { said, events: json.traceEvents, folder: dirname(profile.callsFile) };
}

const process10 = "# millpond trace 1, process 10, started 2026-01-30T10:00:00.000000Z, program ./train";
const launch = (micro: number): string =>
  `${micro}.000 +0.400 10/11 cuLaunchKernel(f=0x1000008 "_Z3addi", gridDimX=4) = CUDA_SUCCESS`;

test("calls and work of the device are on one time line, launches lead to their kernels", async () => {
  const { said, events } = await merged(
    [process10, launch(100), launch(110), "120.000 +9.000 10/11 cuCtxSynchronize() = CUDA_SUCCESS; waits 1"],
    // The driver may finish later work first.
    [header, copy(90), name, kernel(115, 4), kernel(105, 3), fill(130), "lost\t7"],
  );
  expect(said).toMatch(/profile\.json: 3 calls, 2 kernels, 1 copy, 1 fill; 7 more were lost/);
  const work = (category: string) => events.filter(({ cat, ph }) => cat === category && ph === "X");
  expect(work("cuda_driver").map((each) => [each.name, each.pid, each.tid, each.ts, each.dur])).toEqual([
    ["cuLaunchKernel", 10, 11, 100, 0.4],
    ["cuLaunchKernel", 10, 11, 110, 0.4],
    ["cuCtxSynchronize", 10, 11, 120, 9],
  ]);
  expect(work("cuda_driver")[0]?.args).toMatchObject({ f: "0x1000008 _Z3addi", gridDimX: "4" });
  expect(work("kernel").map((each) => [each.name, each.tid, each.ts, each.dur])).toEqual([
    ["add(int)", 7, 115, 2.5],
    ["add(int)", 7, 105, 2.5],
  ]);
  expect(work("kernel")[0]?.args).toMatchObject({
    device: 0,
    stream: 7,
    grid: [4, 1, 1],
    block: [256, 1, 1],
    "registers per thread": 16,
    "static shared memory": 8,
    "dynamic shared memory": 32,
  });
  expect(work("gpu_memcpy")).toMatchObject([
    { name: "Memcpy HtoD (Pinned -> Device)", args: { bytes: 4000, "memory bandwidth (GB/s)": 4 } },
  ]);
  expect(work("gpu_memset")).toMatchObject([{ tid: 9, dur: 0, args: { bytes: 64, device: 1 } }]);
  const arrows = events.filter(({ cat }) => cat === "ac2g");
  expect(arrows.map(({ ph, id, ts }) => [ph, id, ts])).toEqual([
    ["s", 1, 100],
    ["f", 1, 105],
    ["s", 2, 110],
    ["f", 2, 115],
  ]);
  const labels = events.filter((each) => each.name === "process_labels").map(({ args }) => args?.["labels"]);
  expect(labels).toEqual(["CPU", "GPU 0", "GPU 1"]);
});

test("launches that cannot be told apart have no arrows: of graphs, failed, of another process", async () => {
  const failed = launch(100).replace("CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE");
  const { events } = await merged(
    [process10, launch(90), failed],
    [header, name, kernel(105, 1), kernel(106, 2)],
    [header.replace("10", "20"), name, kernel(107, 1)],
  );
  expect(events.filter(({ cat }) => cat === "ac2g")).toEqual([]);
  const tracks = new Set(events.filter(({ cat }) => cat === "kernel").map(({ pid }) => pid));
  expect(tracks.size).toBe(2);
});

test("without records there are the calls, without calls the records, and the folder is gone", async () => {
  expect((await merged([process10, launch(1)])).events.filter(({ ph }) => ph === "X")).toHaveLength(1);
  const { events, folder: gone } = await merged([], [header, copy(1)]);
  expect(events.filter(({ ph }) => ph === "X")).toMatchObject([{ ts: 0 }]);
  expect(() => readFileSync(gone)).toThrow("ENOENT");
  expect((await merged([])).events).toEqual([]);
});

async function entriesOf(text: string): Promise<ProfileEntry[]> {
  const file = join(folder, "records");
  writeFileSync(file, text);
  const entries = [];
  for await (const entry of readProfile(file)) entries.push(entry);
  return entries;
}

test("a program that was killed leaves whole lines, and perhaps a last one that is cut", async () => {
  const whole = `${[header, name, kernel(1, 1)].join("\n")}\n`;
  expect(await entriesOf(whole)).toHaveLength(2);
  for (let length = 0; length < whole.length; ++length) {
    const entries = await entriesOf(whole.slice(0, length));
    expect(entries.length).toBe(length > header.length ? 1 : 0);
  }
});

test.each([
  ["before the header", `${kernel(1, 1)}\n${header}\n`],
  ["of another version", `${header.replace("profile 1", "profile 2")}\n`],
  ["with a name that has no line", `${header}\n${kernel(1, 1)}\n`],
  ["with a field too many", `${header}\n${copy(1)}\t1\n`],
  ["with a field too few", `${header}\n${fill(1).replace(/\t\d+$/, "")}\n`],
  ["with a field that is no number", `${header}\n${fill(1).replace("255", "x")}\n`],
  ["that ends before it begins", `${header}\nf\t20\t10\t0\t1\t7\t1\t0\t64\n`],
  ["with a name that is no JSON", `${header}\nname\t1\t"a\t"b"\n`],
  ["with a name that is a number", `${header}\nname\t1\t1\t"b"\n`],
  ["of a kind that is not known", `${header}\nx\t1\n`],
  ["that is empty", `${header}\n\n`],
])("a line %s is refused with its number", async (_what, text) => {
  await expect(entriesOf(text)).rejects.toThrow(/records:\d: .* is not a line of a profile/);
});
