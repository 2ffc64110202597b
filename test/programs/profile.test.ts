// SPDX-License-Identifier: Apache-2.0
// Profiles of the examples: what the software GPU did, with its times, as `millpond run --profile` writes it.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { examples, Pool } from "../support/pool.ts";

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool.isClean();
  await pool[Symbol.asyncDispose]();
});

interface Event {
  readonly ph: string;
  readonly cat?: string;
  readonly name: string;
  readonly pid: number;
  readonly ts: number;
  readonly dur: number;
  readonly id?: number;
  readonly args: Readonly<Record<string, unknown>>;
}

function eventsOf(file: string): readonly Event[] {
  return (JSON.parse(readFileSync(file, "utf8")) as { readonly traceEvents: readonly Event[] }).traceEvents;
}

const ofKind = (events: readonly Event[], cat: string): readonly Event[] =>
  events.filter((each) => each.cat === cat && each.ph === "X");

describe.each(["shm", "tcp"])("over %s", (transport) => {
  const options = ["-m", "256Mi", "--service-class", "burstable", "--transport", transport];

  it("has each kernel and copy of the program, between the launch and the wait", async () => {
    const file = join(pool.directory, `${transport}.json`);
    const elements = 100_000;
    const { status, stdout, stderr } = await pool.run(
      [...options, "--profile", file],
      ["vectoradd", String(elements)],
    );
    expect({ status, stderr }).toMatchObject({ status: 0 });
    expect(stdout).toContain("vectoradd: OK");
    expect(stderr).toMatch(
      /^millpond: profile .*\.json: \d+ calls, 1 kernel, \d+ cop(?:y|ies), \d+ fills?\n$/,
    );
    const events = eventsOf(file);
    const [kernel, ...others] = ofKind(events, "kernel");
    expect(others).toEqual([]);
    expect(kernel?.name).toMatch(/^add\(/);
    expect(kernel?.dur).toBeGreaterThan(0);
    expect(kernel?.args["block"]).toEqual([256, 1, 1]);
    expect(kernel?.args["grid"]).toEqual([Math.ceil(elements / 256), 1, 1]);
    const bytes = (direction: string): number =>
      ofKind(events, "gpu_memcpy")
        .filter(({ name }) => name.startsWith(`Memcpy ${direction} `))
        .reduce((sum, { args }) => sum + Number(args["bytes"]), 0);
    expect(bytes("HtoD")).toBe(2 * 4 * elements);
    expect(bytes("DtoH")).toBe(4 * elements);
    const launch = ofKind(events, "cuda_driver").find(({ name }) => name.startsWith("cuLaunchKernel"));
    // Calls that only query the client are not recorded: there are far more of them.
    const asked = ofKind(events, "cuda_driver").filter(({ name }) =>
      /^cu(CtxGetCurrent|DeviceGet|GetProcAddress)/.test(name),
    );
    expect(asked).toEqual([]);
    // One host, one clock: an effect of a call comes after the call.
    expect(kernel?.ts).toBeGreaterThanOrEqual(launch?.ts ?? Number.POSITIVE_INFINITY);
    const arrows = events.filter(({ cat }) => cat === "ac2g");
    expect(arrows.map(({ ph }) => ph)).toEqual(["s", "f"]);
    expect(arrows.map(({ pid }) => pid)).toEqual([launch?.pid, kernel?.pid]);
  });

  it("has all processes of the program, and nothing of another claim on the same device", async () => {
    const file = join(pool.directory, `${transport}.both.json`);
    const other = pool.startEndless([...options, "-m", "64Mi"]);
    try {
      await pool.connected(1);
      const both = `"$0" vectoradd 1000 && "$0" reduction 1000`;
      const args = ["run", ...options, "--profile", file, "--", "sh", "-c", both, examples];
      const { status, stderr } = await pool.millpond(args);
      expect({ status, stderr }).toMatchObject({ status: 0 });
    } finally {
      other.signal("SIGINT");
      await other.finished;
    }
    const kernels = ofKind(eventsOf(file), "kernel");
    expect(new Set(kernels.map(({ pid }) => pid)).size).toBe(2);
    const names = new Set(kernels.map(({ name }) => name.replace(/[(<].*/, "")));
    expect([...names].sort()).toEqual(["add", "void sum_blocks"]);
  });
});

it("a profile that cannot be written is refused before anything is asked of the pool", async () => {
  const { status, stderr } = await pool.run(["--profile", "/no/such/folder/p.json"], ["vectoradd", "10"]);
  expect(status).toBe(118);
  expect(stderr).toContain('--profile "/no/such/folder/p.json" cannot be written: ENOENT');
});
