// SPDX-License-Identifier: Apache-2.0
// The examples through the whole system: CLI, controller, agent, worker, software GPU.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { inRoot } from "../scripts/lib/paths.ts";
import { examples, Pool } from "./support/pool.ts";
import { startProgram } from "./support/program.ts";

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "2", "--devices", "1", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool.isClean();
  await pool[Symbol.asyncDispose]();
});

const cases: readonly (readonly string[])[] = [
  ["vectoradd", "200000"],
  ["matmul", "96"],
  ["reduction", "300000"],
  ["histogram", "300000"],
  ["mandelbrot", "96", "64"],
  ["streams", "200000"],
];

describe.each(["shm", "tcp"])("over %s", (transport) => {
  const options = ["-m", "256Mi", "--service-class", "burstable", "--transport", transport];

  it.each(cases)("%s %s from the checked-in program gives the CPU's result", async (...args) => {
    const { status, stdout, stderr } = await pool.run(options, args);
    expect(stderr).toBe("");
    expect(stdout).toMatch(new RegExp(`^${args[0]}: OK`, "m"));
    expect(status).toBe(0);
  });

  const built = cases.filter(([name]) => existsSync(inRoot("build", "examples", name ?? "")));
  it.runIf(built.length > 0)("programs built from source give the same", async () => {
    for (const [name = "", ...args] of built) {
      const program = inRoot("build", "examples", name);
      const { status, stdout, stderr } = await pool.millpond(["run", ...options, "--", program, ...args]);
      expect({ name, status, stderr }).toEqual({ name, status: 0, stderr: "" });
      expect(stdout).toMatch(new RegExp(`^${name}: OK`, "m"));
    }
  });

  it("the picture is a PNG", async () => {
    const picture = join(pool.directory, `${transport}.png`);
    const { status } = await pool.run(options, ["mandelbrot", "64", "48", "--out", picture]);
    expect(status).toBe(0);
    expect(readFileSync(picture).subarray(1, 4).toString()).toBe("PNG");
  });
});

describe("a container without the CLI", () => {
  it("attaches by its environment alone, and its claim ends with it", async () => {
    const env = pool.containerEnvironment({
      MILLPOND_GPUS: "1",
      MILLPOND_MEMORY: "256Mi",
      MILLPOND_COMPUTE: "25",
    });
    const { status, stdout, stderr } = await startProgram(examples, ["vectoradd", "1000"], env).finished;
    expect(stderr).toBe("");
    expect(stdout).toContain("vectoradd: OK");
    expect(status).toBe(0);
    await pool.isClean();
  });

  it("is told what is wrong with its wishes", async () => {
    const env = pool.containerEnvironment({ MILLPOND_GPUS: "1", MILLPOND_MEMORY: "lots" });
    const { status, stderr } = await startProgram(examples, ["vectoradd", "1000"], env).finished;
    expect(stderr).toMatch(/MILLPOND_MEMORY.*lots/);
    expect(status).toBe(1);
    expect(await pool.claims()).toEqual([]);
  });

  it("is told that its token is not accepted", async () => {
    const env = pool.containerEnvironment({ MILLPOND_TOKEN: "wrong" });
    const { stderr } = await startProgram(examples, ["vectoradd", "1000"], env).finished;
    expect(stderr).toMatch(/token/);
    expect(stderr).toMatch(/\[MILLPOND_E_/);
  });
});
