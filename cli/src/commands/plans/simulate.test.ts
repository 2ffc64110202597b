// SPDX-License-Identifier: Apache-2.0

import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { entry } from "../../../test/entry.ts";

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "millpond-simulate-"));
  const nodes = ["n0,64000,262144,2,P100", "n1,96000,393216,8,G2"];
  await writeFile(
    join(folder, "openb_node_list_gpu_node.csv"),
    `sn,cpu_milli,memory_mib,gpu,model\n${nodes.join("\n")}\n`,
  );
  const pods = ["a,3152,5600,1,810", "b,8000,30517,1,470", "c,11400,48128,1,1000", "d,8000,1024,0,0"];
  await writeFile(
    join(folder, "openb_pod_list_tiny.csv"),
    `name,cpu_milli,memory_mib,num_gpu,gpu_milli\n${pods.join("\n")}\n`,
  );
});

afterAll(() => rm(folder, { recursive: true }));

async function simulate(
  ...args: readonly string[]
): Promise<{ status: number; stdout: string; stderr: string }> {
  try {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [entry, "simulate", ...args]);
    return { status: 0, stdout, stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
    return { status: code, stdout, stderr };
  }
}

test("policies are compared side by side, as JSON, with progress apart from it", async () => {
  const { status, stdout, stderr } = await simulate(
    `--data=${folder}`,
    "--trace=tiny",
    "--policy=random,FGD,least-fragmentation",
    "--seeds=2",
    "--output=json",
    `--out=${["plot.svg", "curves.csv", "all.json", "table.md"].map((name) => join(folder, name)).join(",")}`,
  );
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ apiVersion: "millpond.v1", kind: "Simulation" });
  const { results } = JSON.parse(stdout) as { results: Record<string, unknown>[] };
  expect(results.map(({ policy }) => policy)).toEqual(["random", "fgd", "least-fragmentation"]);
  for (const result of results) {
    expect(result).toMatchObject({ trace: "tiny", pooled: false, seeds: 2 });
    const figures = ["mean", "sd", "min", "fragmentation80", "fragmentation90", "decisionsPerSecond"];
    for (const figure of figures) {
      expect(result[figure]).toEqual(expect.any(Number));
    }
    expect(result["min"]).toBeLessThanOrEqual(result["mean"] as number);
  }
  // One line per policy, because standard error is not a terminal.
  expect(stderr).toBe("tiny random: 2 seeds\ntiny fgd: 2 seeds\ntiny least-fragmentation: 2 seeds\n");
  expect(await readFile(join(folder, "plot.svg"), "utf8")).toMatch(/^<svg [^]*<\/svg>\n$/);
  expect(await readFile(join(folder, "curves.csv"), "utf8")).toMatch(/\ntiny,fgd,\d+,/);
  expect(JSON.parse(await readFile(join(folder, "all.json"), "utf8"))).toMatchObject({ summaries: results });
  expect(await readFile(join(folder, "table.md"), "utf8")).toMatch(/\n\| tiny +\| random +\| +2 \|/);
});

test("a file that cannot be written is refused before anything is computed", async () => {
  const aFolder = await mkdtemp(join(tmpdir(), "millpond-folder-"));
  await mkdir(join(aFolder, "folder.csv"));
  for (const [path, why] of [
    ["/nowhere/plot.svg", /--out: "\/nowhere\/plot\.svg" cannot be written: ENOENT/],
    [join(aFolder, "folder.csv"), /--out: .* cannot be written: it is a folder/],
    ["plot.png", /--out: "plot\.png" ends in none of \.svg, \.csv, \.json, \.md\n/],
  ] as const) {
    const { status, stderr } = await simulate(`--data=${folder}`, "--trace=tiny", `--out=${path}`);
    expect(status).toBe(118);
    expect(stderr).toMatch(why);
    expect(stderr).not.toContain("seed");
  }
  await rm(aFolder, { recursive: true });
});

test("a table without further options, and clear errors", async () => {
  const { stdout } = await simulate("--data", folder, "--seeds", "1");
  expect(stdout).toMatch(/^TRACE +POLICY +CLAIM +ALLOC@130/);
  expect(stdout).toMatch(/\ntiny +least-fragmentation +node +\d/);
  expect((await simulate()).stderr).toContain("--data is missing");
  expect((await simulate("--data", folder, "--policy", "best")).stderr).toContain('"best" is not one of');
  const empty = join(folder, "empty");
  await mkdir(empty);
  expect((await simulate("--data", empty)).stderr).toContain("no trace in");
  const missing = await simulate("--data", folder, "--trace", "huge");
  expect(missing.status).toBe(121);
  expect(missing.stderr).toContain("there are tiny");
});
