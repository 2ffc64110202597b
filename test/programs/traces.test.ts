// SPDX-License-Identifier: Apache-2.0
// Traces of the examples: `millpond run --trace`, then `millpond trace`.
import { readdirSync, readFileSync } from "node:fs";
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

interface Summary {
  readonly processes: readonly { readonly program: string; readonly calls: number }[];
  readonly threads: readonly unknown[];
  readonly calls: readonly { readonly name: string; readonly count: number; readonly waits: number }[];
  readonly copies: readonly { readonly from: string; readonly to: string; readonly bytes: number }[];
  readonly launches: readonly {
    readonly kernel: string;
    readonly readable?: string;
    readonly count: number;
  }[];
  readonly failures: readonly { readonly name: string; readonly text: string }[];
}

async function summaryOf(...files: readonly string[]): Promise<Summary> {
  const { status, stdout, stderr } = await pool.millpond(["trace", ...files, "-o", "json"]);
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  return JSON.parse(stdout) as Summary;
}

describe.each(["shm", "tcp"])("over %s", (transport) => {
  const options = ["-m", "256Mi", "--service-class", "burstable", "--transport", transport];

  it("a program's calls are written down and summed up", async () => {
    const file = join(pool.directory, `${transport}.calls`);
    const elements = 100_000;
    const { status, stdout, stderr } = await pool.run(
      [...options, "--trace", file],
      ["vectoradd", String(elements)],
    );
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toContain("vectoradd: OK");
    const summary = await summaryOf(file);
    expect(summary.processes).toHaveLength(1);
    expect(summary.processes[0]?.program).toBe(`${examples} vectoradd ${elements}`);
    const bytes = elements * 4;
    expect(summary.copies).toContainEqual(
      expect.objectContaining({ from: "host", to: "device", bytes: 2 * bytes }),
    );
    expect(summary.copies).toContainEqual(expect.objectContaining({ from: "device", to: "host", bytes }));
    expect(summary.launches).toEqual([
      expect.objectContaining({
        kernel: expect.stringMatching(/^_Z\w+add/) as string,
        readable: expect.stringMatching(/\badd\(float const\*, /) as string,
        count: 1,
      }),
    ]);
    // The CUDA runtime requests tables that not every driver has.
    expect(summary.failures.filter(({ name }) => name !== "cuGetExportTable")).toEqual([]);
    expect(summary.calls.some(({ waits }) => waits > 0)).toBe(true);
    const table = await pool.millpond(["trace", file]);
    expect(table.status).toBe(0);
    expect(table.stdout).toMatch(/^CALL +COUNT/m);
    expect(table.stdout).toMatch(/^KERNEL.*\n\S*\badd\(float const\*, /m);
    // Without the native files, names are those of the image.
    const program = pool.start(["trace", file], { MILLPOND_NATIVE_DIR: pool.directory });
    program.endInput();
    const elsewhere = await program.finished;
    expect(elsewhere).toMatchObject({ status: 0, stderr: "" });
    expect(elsewhere.stdout).toMatch(/^KERNEL.*\n_Z\w+add/m);
  });

  it("processes that run at once share a file, or have one each", async () => {
    const two = `"$0" vectoradd 1000 & "$0" reduction 1000 & wait $! && wait`;
    for (const name of [`${transport}.both`, `${transport}.each.%p`]) {
      const args = [
        "run",
        ...options,
        "--trace",
        join(pool.directory, name),
        "--",
        "sh",
        "-c",
        two,
        examples,
      ];
      const { status, stderr } = await pool.millpond(args);
      expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
      const files = readdirSync(pool.directory)
        .filter((each) => each.startsWith(name.replace("%p", "")))
        .map((each) => join(pool.directory, each));
      expect(files).toHaveLength(name.endsWith("%p") ? 2 : 1);
      const { processes } = await summaryOf(...files);
      expect(new Set(processes.map(({ program }) => program.split(" ").at(-2)))).toEqual(
        new Set(["reduction", "vectoradd"]),
      );
      expect(processes).toHaveLength(2);
      const lines = files.flatMap((each) => readFileSync(each, "utf8").split("\n").slice(0, -1));
      expect(lines).toHaveLength(processes.reduce((sum, { calls }) => sum + calls + 1, 0));
    }
  });
});
