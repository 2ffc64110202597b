// SPDX-License-Identifier: Apache-2.0
// Runtimes of earlier CUDA releases, as they are in programs that were built with these, on a driver of CUDA 13.
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { inRoot } from "../../scripts/lib/paths.ts";
import { unpackDebian } from "../support/debian-packages.ts";
import { Pool } from "../support/pool.ts";

const runtimes = [
  { release: "11.8", package: { name: "libcudart11.0", suite: "bookworm" }, version: 11_080 },
  { release: "12.4", package: { name: "libcudart12", suite: "trixie" }, version: 12_040 },
] as const;

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool.isClean();
  await pool[Symbol.asyncDispose]();
});

for (const { release, package: of, version } of runtimes) {
  const { folder = "", missing } = { folder: undefined, ...unpackDebian(of) };
  const note = missing === undefined ? "" : ` (not run: ${missing})`;
  it.skipIf(missing !== undefined)(
    `a program of CUDA ${release} computes over both transports what it should${note}`,
    { timeout: 300_000 },
    async () => {
      const libraries = join(folder, "usr", "lib", "x86_64-linux-gnu");
      const runtime = readdirSync(libraries).find((name) => name.startsWith("libcudart.so.")) ?? "";
      const program = join(pool.directory, `caller-${release}`);
      const source = inRoot("test", "programs", "runtime_caller.c");
      const link = [join(libraries, runtime), `-Wl,-rpath,${libraries}`];
      execFileSync("gcc", ["-O1", "-Wall", "-Wextra", "-Werror", source, "-o", program, ...link]);
      const kernels = inRoot("conformance", "programs", "driver", "images", "kernels.fatbin");
      for (const transport of ["shm", "tcp"]) {
        const options = ["-m", "256Mi", "--transport", transport];
        const result = await pool.millpond(["run", ...options, "--", program, kernels]);
        expect([transport, result]).toEqual([
          transport,
          { status: 0, stdout: `${version} on 13000: OK\n`, stderr: "" },
        ]);
      }
    },
  );
}
