// SPDX-License-Identifier: Apache-2.0
// The examples of docs/sdk.md, as they stand there, on a pool of software GPUs. A module named torch stands for PyTorch.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { inRoot } from "../../scripts/lib/paths.ts";
import { Pool as SdkPool } from "../../sdk/typescript/src/index.ts";
import { clientDirectory, Pool } from "../support/pool.ts";
import { startProgram } from "../support/program.ts";

/** The blocks of the page in a language, in their order. */
function blocks(language: "python" | "ts"): string[] {
  const page = readFileSync(inRoot("docs", "sdk.md"), "utf8");
  const pattern = new RegExp(`\`\`\`${language}\\n([^]*?)\`\`\``, "g");
  return [...page.matchAll(pattern)].map(([, text = ""]) => text);
}

const usesGpu = `import ctypes
cuda, bytes = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceTotalMem_v2(ctypes.byref(bytes), 0) == 0
`;

let pool: Pool;
let environment: NodeJS.ProcessEnv;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "16Gi");
  expect((await pool.millpond(["queue", "create", "research"])).stderr).toBe("");
  writeFileSync(join(pool.directory, "torch.py"), `${usesGpu}print("torch has", bytes.value, flush=True)\n`);
  writeFileSync(
    join(pool.directory, "train.py"),
    `${usesGpu}print("trained with", bytes.value, flush=True)\n`,
  );
  const programs = join(pool.directory, "programs");
  mkdirSync(programs);
  writeFileSync(join(programs, "python"), '#!/bin/sh\nexec python3 "$@"\n', { mode: 0o755 });
  environment = pool.containerEnvironment({
    PATH: `${programs}:${process.env["PATH"]}`,
    PYTHONPATH: `${inRoot("sdk", "python", "src")}:${pool.directory}`,
    PYTHONDONTWRITEBYTECODE: "1",
  });
});
afterAll(async () => {
  await pool.isClean();
  await pool[Symbol.asyncDispose]();
});

const python = spawnSync("python3", ["--version"]).status === 0 ? "" : " (not run: no python3 here)";

it.skipIf(python !== "")(`the examples for Python run${python}`, async () => {
  const { stdout } = await pool.millpond(["get", "nodes", "-o", "json"]);
  const { items } = JSON.parse(stdout) as { readonly items: readonly { readonly name: string }[] };
  const outputs = [];
  for (const block of blocks("python")) {
    const text = `import millpond, os, subprocess\nos.chdir(${JSON.stringify(pool.directory)})\n${block}`;
    const script = text.replace("node-7", items[0]?.name ?? "");
    const {
      status,
      stdout: said,
      stderr,
    } = await startProgram("python3", ["-c", script], environment).finished;
    expect({ status, stderr }, block).toEqual({ status: 0, stderr: "" });
    outputs.push(said);
  }
  const whole = 8 * 2 ** 30;
  expect(outputs).toEqual([`torch has ${whole}\n`, `trained with ${whole}\n`, "", ""]);
  expect((await pool.millpond(["get", "nodes"])).stdout).toContain("Ready,Cordoned");
  expect((await pool.millpond(["uncordon", items[0]?.name ?? ""])).stderr).toBe("");
});

it("the examples for TypeScript run", async () => {
  const sdk = SdkPool.fromEnvironment(environment);
  await sdk.call("ClaimService", "CreateClaim", {
    claim: { name: "train", memoryBytes: String(2 ** 20), leaseSeconds: 600 },
  });
  const [claims = "", calls = ""] = blocks("ts");
  const text = [
    'import { spawnSync as start, type SpawnSyncOptions } from "node:child_process";',
    "const spawnSync = (name: string, args: string[], options: SpawnSyncOptions) =>",
    `  start(name, args, { cwd: ${JSON.stringify(pool.directory)}, stdio: "inherit", ...options });`,
    claims,
    calls.replace("await pool.call", "const explained = await pool.call"),
    "console.log(explained.claim?.state);",
  ].join("\n");
  const file = join(pool.directory, "page.mts");
  const index = pathToFileURL(inRoot("sdk", "typescript", "src", "index.ts")).href;
  writeFileSync(
    file,
    text
      .replace('"@millpond/sdk"', JSON.stringify(index))
      .replace("/opt/millpond/native/client", clientDirectory),
  );
  const { status, stdout, stderr } = await startProgram(process.execPath, [file], environment).finished;
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toBe(`trained with ${8 * 2 ** 30}\nCLAIM_STATE_BOUND\n`);
  await sdk.call("ClaimService", "ReleaseClaim", { name: "train" });
});
