// SPDX-License-Identifier: Apache-2.0
// Every function of NVML that there is, called with random arguments. MILLPOND_NVML_SEED and MILLPOND_NVML_CALLS try others.
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import {
  nvml,
  type NvmlFunction,
  type NvmlParameter,
  unsupportedNvml as unsupported,
  unsupportedNvmlTakesDevice,
} from "@millpond/cuda";
import { inRoot } from "../../scripts/lib/paths.ts";
import { Pool } from "../support/pool.ts";

const all: Readonly<Record<string, NvmlFunction>> = Object.assign({}, ...Object.values(nvml));

function described(name: string): {
  readonly parameters: Readonly<Record<string, NvmlParameter>>;
  readonly isEarly: boolean;
} {
  const found = all[name];
  if (found === undefined) throw new Error(`nothing describes ${name}`);
  if (found.by === "same") return described(found.as);
  return { parameters: found.parameters, isEarly: found.by === "hand" && found.early === true };
}

function toJson(name: string, parameter: NvmlParameter) {
  if (typeof parameter === "string") return { name, kind: parameter, type: "" };
  const [[kind, type] = ["", ""]] = Object.entries(parameter);
  return { name, kind, type };
}

const python = spawnSync("python3", ["--version"]).status === 0 ? "" : " (not run: no python3 here)";

it.skipIf(python !== "")(`every function answers any arguments as NVML does${python}`, async () => {
  await using pool = await Pool.start("--devices", "2", "--device-memory", "1Gi");
  const functions = Object.keys(all).map((name) => {
    const { parameters, isEarly } = described(name);
    return {
      name,
      early: isEarly,
      parameters: Object.entries(parameters).map(([label, parameter]) => toJson(label, parameter)),
    };
  });
  const file = join(pool.directory, "nvml.json");
  const refused = unsupported.map((name) => [name, unsupportedNvmlTakesDevice(name)]);
  writeFileSync(file, JSON.stringify({ functions, unsupported: refused }));
  const seed = process.env["MILLPOND_NVML_SEED"] ?? "1";
  const calls = process.env["MILLPOND_NVML_CALLS"] ?? "20000";
  const script = inRoot("test", "support", "nvml_random.py");
  const { status, stdout, stderr } = await pool.millpond([
    "run",
    "-n",
    "2",
    "-m",
    "64Mi",
    "--compute",
    "10",
    "--",
    "python3",
    script,
    file,
    seed,
    calls,
  ]);
  expect([status, stderr.split("\n").filter((line) => line !== "")]).toEqual([0, []]);
  const result = JSON.parse(stdout) as { readonly succeeded: readonly string[]; readonly called: number };
  expect(result).toMatchObject({
    before: [1],
    devices: 2,
    failures: [],
    children: [0, 0, 0, 0],
    counted: 0,
    after: [1],
    written: 0,
  });
  if (Number(calls) >= 20_000) expect(result.called).toBe(functions.length + unsupported.length);
  // The functions for which a pool of software GPUs has an answer.
  for (const name of ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetFieldValues"]) {
    expect(result.succeeded).toContain(name);
  }
});

it("the library exports what is described, and nothing more", () => {
  const library = inRoot("build", "native", "release", "client", "libnvidia-ml.so.1");
  const { stdout } = spawnSync("nm", ["-D", "--defined-only", library], { encoding: "utf8" });
  const exported = [...stdout.matchAll(/ T (nvml\w+)/g)].map(([, name = ""]) => name);
  const byHand = [
    ...readFileSync(inRoot("native", "nvml", "life.cpp"), "utf8").matchAll(/^NVML .*?(nvml\w+)\(/gm),
  ];
  const expected = [...Object.keys(all), ...unsupported, ...byHand.map(([, name = ""]) => name)];
  expect(exported.toSorted()).toEqual(expected.toSorted());
});
