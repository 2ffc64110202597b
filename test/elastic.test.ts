// SPDX-License-Identifier: Apache-2.0
// Claims whose sizes change, before their programs and under them.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { examples, Pool, until } from "./support/pool.ts";
import { startProgram } from "./support/program.ts";

const MiB = 2 ** 20;

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "2", "--device-memory", "128Mi");
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

/** Memory of each device that is accounted for, in MiB, ascending. */
async function booked(): Promise<number[]> {
  return (await pool.devices())
    .map(({ allocatedMemoryBytes }) => allocatedMemoryBytes / MiB)
    .sort((a, b) => a - b);
}

describe("a program that runs", () => {
  it("gets more memory, and gives back what it does not use, but not what it uses", async () => {
    const program = pool.start(["run", "--name", "runs", "-m", "32Mi", "--", examples, "memhold", "4"]);
    await program.says("stdout", /holds 4 MiB/);
    const env = pool.containerEnvironment({ MILLPOND_CLAIM: "runs" });

    expect(await pool.millpond(["resize", "runs", "-m", "96Mi", "-c", "90"])).toMatchObject({
      status: 0,
      stdout: "claim/runs has 1 vGPU, 96 MiB and 90% compute each\n",
    });
    expect(await booked()).toEqual([0, 96]);
    expect((await startProgram(examples, ["memhog"], env).finished).stdout).toContain(
      "memory: 96 MiB, of which free 92 MiB",
    );
    // Until then the memory of the program that has ended is in use.
    await pool.connected(1);

    expect(await pool.millpond(["resize", "runs", "-m", "8Mi"])).toMatchObject({ status: 0 });
    expect(await booked()).toEqual([0, 8]);
    expect((await startProgram(examples, ["memhog", "1"], env).finished).stdout).toContain(
      "memory: 8 MiB, of which free 4 MiB",
    );
    await pool.connected(1);

    const refused = await pool.millpond(["resize", "runs", "-m", "1Mi"]);
    expect(refused.status).not.toBe(0);
    expect(refused.stderr).toMatch(
      /the claim runs keeps its size: its programs have 4 MiB in use on device 0, more than the new limit of 1 MiB/,
    );
    expect(refused.stderr).toContain("[MILLPOND_E_IN_USE]");
    expect(await booked()).toEqual([0, 8]);
    expect((await pool.sessions()).map(({ state }) => state)).toEqual(["connected"]);

    expect((await pool.millpond(["resize", "runs", "-m", "256Mi"])).stderr).toContain(
      "where 120 MiB is left",
    );
    expect((await pool.millpond(["resize", "runs", "-n", "2"])).stderr).toContain("has 1 open session");
    // It held the same memory all the time.
    program.endInput();
    expect((await program.finished).stdout).toContain("memhold: OK (4 MiB held, 0 words wrong)");
    await pool.isClean();
  });
});

it("the programs of one claim get other numbers of vGPUs, one after the other", async () => {
  const holder = pool.start([
    "run",
    "--name",
    "shell",
    "-m",
    "32Mi",
    "--",
    "sh",
    "-c",
    "echo ready; read line",
  ]);
  await holder.says("stdout", /ready/);
  const env = pool.containerEnvironment({ MILLPOND_CLAIM: "shell" });
  const devices = async () => (await startProgram(examples, ["deviceinfo"], env).finished).stdout;
  expect(await devices()).toContain("1 device");
  for (const gpus of [2, 1]) {
    expect(await pool.millpond(["resize", "shell", "-n", String(gpus), "-m", "16Mi"])).toMatchObject({
      status: 0,
    });
    expect(await devices()).toContain(`${gpus} device`);
  }
  holder.endInput("\n");
  expect((await holder.finished).status).toBe(0);
  await pool.isClean();
});

it("a lazy claim costs nothing while its owner thinks, and its programs wait for their turn", async () => {
  const thinker = pool.start([
    "run",
    "--lazy",
    "--name",
    "lazy",
    "-n",
    "2",
    "--",
    "sh",
    "-c",
    "echo ready; read line",
  ]);
  await thinker.says("stdout", /ready/);
  const state = async () => (await pool.claims()).find(({ name }) => name === "lazy")?.state;
  expect(await state()).toBe("dormant");
  expect(await booked()).toEqual([0, 0]);
  const env = pool.containerEnvironment({ MILLPOND_CLAIM: "lazy" });

  const other = pool.startHolder(["-m", "32Mi"]);
  await pool.connected(1);
  const impatient = await pool.run(["--lazy", "-n", "2", "--timeout", "1s"], ["vectoradd", "1000"]);
  expect(impatient.status).not.toBe(0);
  expect(impatient.stderr).toMatch(/no GPU within 1 s .*MILLPOND_E_WAIT_TIMEOUT/);
  const waiting = startProgram(examples, ["vectoradd", "1000"], env);
  await waiting.says("stderr", /waiting for lazy: /);
  expect(await state()).toBe("pending");
  other.signal("SIGINT");
  await other.finished;
  expect((await waiting.finished).status).toBe(0);
  await until("a claim that sleeps", state, (word) => word === "dormant");
  await until("devices that nobody holds", booked, (all) => all.every((memory) => memory === 0));

  // A killed program releases its memory as well.
  const killed = startProgram(examples, ["vectoradd", "1000", "--repeat", "100000000"], env);
  await pool.connected(1);
  expect(await booked()).toEqual([128, 128]);
  killed.signal("SIGKILL");
  await killed.finished;
  await until("a claim that sleeps", state, (word) => word === "dormant");
  expect(await pool.millpond(["resize", "lazy", "-n", "1", "-m", "16Mi"])).toMatchObject({ status: 0 });
  expect((await startProgram(examples, ["deviceinfo"], env).finished).stdout).toContain("(1 devices)");
  thinker.endInput("\n");
  expect((await thinker.finished).status).toBe(0);
  await pool.isClean();
});
