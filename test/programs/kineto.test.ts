// SPDX-License-Identifier: Apache-2.0
// A program that profiles itself by CUPTI, with the calls of PyTorch's profiler: what it sees of the software GPU.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nativeDir } from "../../scripts/lib/paths.ts";
import { examples, Pool } from "../support/pool.ts";

const program = join(nativeDir("release"), "program_kineto");

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool.isClean();
  await pool[Symbol.asyncDispose]();
});

interface Timed {
  readonly name: string;
  readonly start: bigint;
  readonly end: bigint;
  readonly correlation: number;
  readonly rest: readonly number[];
}

/** The output of the program for one session of its profiler. */
interface Session {
  readonly name: string;
  readonly begin: bigint;
  readonly end: bigint;
  /** By the program's number of a launch. */
  readonly launched: ReadonlyMap<number, string>;
  readonly records: ReadonlyMap<string, readonly Timed[]>;
  /** External number of this kind, by correlation. */
  readonly external: ReadonlyMap<number, ReadonlyMap<number, number>>;
}

const ofKind = (session: Session, kind: string): readonly Timed[] => session.records.get(kind) ?? [];

function readSession(text: string): Session {
  const [name = "", ...lines] = text.trim().split("\n");
  const launched = new Map<number, string>();
  const records = new Map<string, Timed[]>();
  const external = new Map<number, Map<number, number>>();
  let window: readonly [bigint, bigint] = [0n, 0n];
  for (const line of lines) {
    const [kind = "", ...fields] = line.split(" ");
    const [first = "", second = "0", third = "0", ...rest] = fields;
    if (kind === "window") {
      window = [BigInt(first), BigInt(second)];
    } else if (kind === "launched") {
      // Launches after the session are missing.
      if (Number(first) % 1000 < 500) launched.set(Number(first), second);
    } else if (kind === "external") {
      const ids = external.get(Number(first)) ?? new Map<number, number>();
      expect(ids.has(Number(third))).toBe(false);
      external.set(Number(first), ids.set(Number(third), Number(second)));
    } else {
      const [correlation = 0, ...others] = rest.map(Number);
      const timed = { name: first, start: BigInt(second), end: BigInt(third), correlation, rest: others };
      records.set(kind, [...(records.get(kind) ?? []), timed]);
    }
  }
  return { name, begin: window[0], end: window[1], launched, records, external };
}

function checkSession(session: Session): void {
  const kernels = ofKind(session, "kernel");
  const calls = new Map(ofKind(session, "call").map((call) => [call.correlation, call]));
  expect(calls.size).toBe(ofKind(session, "call").length);
  const custom0 = session.external.get(3) ?? new Map<number, number>();
  const custom1 = session.external.get(4) ?? new Map<number, number>();
  expect(new Set(session.external.keys())).toEqual(new Set([3, 4]));
  // Each launch once, none from another session and none after the session.
  expect(session.launched.size).toBe(60);
  const seen = kernels.map(({ name, correlation }) => [custom0.get(correlation), name]);
  expect(new Map(seen as [number, string][])).toEqual(session.launched);
  expect(kernels.length).toBe(60);
  for (const kernel of kernels) {
    const call = calls.get(kernel.correlation);
    expect(call?.name).toBe("cuLaunchKernel");
    expect(custom1.get(kernel.correlation)).toBe((custom0.get(kernel.correlation) ?? 0) + 1000);
    // One host, one clock: an effect of a call comes after the call has begun.
    expect(kernel.start).toBeGreaterThanOrEqual(call?.start ?? session.end);
    const [device, , grid, block] = kernel.rest;
    expect([device, grid, block]).toEqual([0, 16, 256]);
  }
  for (const kind of ["kernel", "copy", "fill", "call", "sync"]) {
    const all = ofKind(session, kind);
    expect(all.length).toBeGreaterThan(0);
    for (const { start, end } of all) {
      expect(end).toBeGreaterThan(start);
      expect(start).toBeGreaterThanOrEqual(session.begin);
      expect(end).toBeLessThanOrEqual(session.end);
    }
  }
  // Two streams, one of which is the default.
  expect(new Set(kernels.map(({ rest }) => rest[1])).size).toBe(2);
  const bytes = (direction: string): number =>
    ofKind(session, "copy")
      .filter(({ name }) => name === direction)
      .reduce((sum, { rest }) => sum + (rest[2] ?? 0), 0);
  expect(bytes("1")).toBe(4 * 4096);
  expect(bytes("2")).toBe(4 * 4096);
  const [fill, ...others] = ofKind(session, "fill");
  expect(others).toEqual([]);
  expect(calls.get(fill?.correlation ?? 0)?.name).toBe("cuMemsetD32Async");
  expect(fill?.rest[2]).toBe(4 * 4096);
  // cuStreamSynchronize and cuCtxSynchronize.
  expect(ofKind(session, "sync").map(({ name }) => name)).toEqual(["3", "4"]);
  // Calls of two threads.
  const launches = [...calls.values()].filter(({ name }) => name === "cuLaunchKernel");
  expect(new Set(launches.map(({ rest }) => rest[0])).size).toBe(2);
  expect([...session.records.keys()].sort()).toEqual(["call", "copy", "fill", "kernel", "sync"]);
}

describe.each(["shm", "tcp"])("over %s", (transport) => {
  const run = ["run", "-m", "256Mi", "--transport", transport];

  it("has each kernel with its call, its name and the program's own numbers, and nothing after the end", async () => {
    const { status, stdout, stderr } = await pool.millpond([...run, "--", program]);
    expect({ status, stderr }).toMatchObject({ status: 0 });
    const [head, ...texts] = stdout.split("session ");
    // Not the library in the folder with which the program is linked.
    expect(head).toMatch(/^version 130000\n/);
    const sessions = texts.map(readSession);
    expect(sessions.map(({ name }) => name)).toEqual(["first", "again", "own-clock"]);
    for (const session of sessions) checkSession(session);
  });
});

it("has calls of the CUDA runtime, also of a program that is profiled before it has a GPU", async () => {
  const file = join(pool.directory, "records");
  const watcher = join(nativeDir("release"), "testing/profilers/libwatcher.so");
  const preloaded = `LD_PRELOAD="${watcher}:$LD_PRELOAD" exec "$0" vectoradd 100000`;
  const watched = ["env", `MILLPOND_TEST_RECORDS=${file}`, "sh", "-c", preloaded, examples];
  const { status, stderr } = await pool.millpond(["run", "-m", "256Mi", "--", ...watched]);
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  const session = readSession(`watched\n${readFileSync(file, "utf8")}`);
  // Driver calls within runtime calls are part of those.
  const direct = ofKind(session, "call").map(({ name }) => name);
  expect(direct.filter((name) => /^cu(Launch|Memcpy|MemAlloc|MemFree)/.test(name))).toEqual([]);
  const runtime = ofKind(session, "runtime");
  const byCorrelation = new Map(runtime.map((call) => [call.correlation, call]));
  expect(byCorrelation.size).toBe(runtime.length);
  const [kernel, ...others] = ofKind(session, "kernel");
  expect(others).toEqual([]);
  const launch = byCorrelation.get(kernel?.correlation ?? 0);
  expect(launch?.name).toMatch(/^cudaLaunchKernel/);
  expect(kernel?.start).toBeGreaterThanOrEqual(launch?.start ?? 0n);
  const copies = ofKind(session, "copy").map(({ correlation }) => byCorrelation.get(correlation)?.name);
  expect(copies.length).toBeGreaterThanOrEqual(3);
  for (const name of copies) expect(name).toMatch(/^cudaMemcpy/);
  const names = new Set(runtime.map(({ name }) => name.replace(/_v\d+$/, "")));
  expect([...names]).toEqual(expect.arrayContaining(["cudaMalloc", "cudaFree"]));
  expect(names).not.toContain("cudaGetLastError");
  for (const { rest } of runtime) expect(rest[1]).toBe(0);
});

it("leaves a program alone that shall have NVIDIA's library", async () => {
  const { status, stdout } = await pool.millpond([
    "run",
    "-m",
    "256Mi",
    "--",
    "env",
    "-u",
    "LD_PRELOAD",
    program,
  ]);
  expect({ status, stdout }).toEqual({ status: 3, stdout: "version 1\n" });
});

it("refuses where `millpond run --profile` takes the records", async () => {
  const file = join(pool.directory, "both.json");
  const { stdout, stderr } = await pool.millpond([
    "run",
    "-m",
    "256Mi",
    "--profile",
    file,
    "--",
    program,
    "refused",
  ]);
  expect(stdout).toContain("enable 39\n");
  expect(stderr).toContain("'millpond run --profile' records it");
});
