// SPDX-License-Identifier: Apache-2.0
// However a program ends, what it had is there for others at once, and not when its lease has run out.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { examples, Pool, until } from "./support/pool.ts";
import { type Program, startProgram } from "./support/program.ts";

/** Sufficient on a slow machine; a lease lasts longer. */
const withinMs = 15_000;

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "2", "--device-memory", "1Gi");
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

async function allIsBack(): Promise<void> {
  await until(
    "a pool that nobody uses",
    () => pool.usage(),
    (usage) => usage.claims.length + usage.sessions.length + usage.devices.length === 0,
    withinMs,
  );
}

function startByEnvironment(transport: string, ...args: string[]): Program {
  const env = pool.containerEnvironment({ MILLPOND_MEMORY: "256Mi", MILLPOND_TRANSPORT: transport });
  return startProgram(examples, ["vectoradd", "1000", ...args], env);
}

describe.each(["shm", "tcp"])("over %s", (transport) => {
  it("a program that attached by its environment and ran for a moment", async () => {
    // So short that, in some of the rounds, a whole session may lie between two reports of the agent.
    for (let round = 0; round < 20; round += 1) {
      expect((await startByEnvironment(transport).finished).status).toBe(0);
      await allIsBack();
    }
  });

  it("a program that is killed", async () => {
    const program = startByEnvironment(transport, "--repeat", "100000000");
    await pool.connected(1);
    program.signal("SIGKILL");
    await program.finished;
    await allIsBack();
  });

  it("a program whose worker is killed", async () => {
    const program = startByEnvironment(transport, "--repeat", "100000000");
    await pool.connected(1);
    const [worker = 0] = await until(
      "a worker that serves it",
      () => pool.servingWorkers(),
      ({ length }) => length === 1,
    );
    process.kill(worker, "SIGKILL");
    await allIsBack();
    expect((await program.finished).stderr).toContain("the GPU of this process is gone");
  });

  it("a program of `millpond run`", async () => {
    const { status } = await pool.run(["-m", "256Mi", "--transport", transport], ["vectoradd", "1000"]);
    expect(status).toBe(0);
    expect(await pool.usage()).toMatchObject({ claims: [] });
    await allIsBack();
    expect(await pool.sessions()).toEqual([]);
    expect((await pool.devices()).map(({ usedMemoryBytes }) => usedMemoryBytes)).toEqual([0, 0]);
  });
});

it("a program that two processes of one claim ran, while the other goes on", async () => {
  const holder = pool.start(["run", "-m", "256Mi", "--", "sh", "-c", "echo $MILLPOND_CLAIM; read line"]);
  await holder.says("stdout", /claim-/);
  const env = pool.containerEnvironment({ MILLPOND_CLAIM: holder.stdout.trim() });
  const other = startProgram(examples, ["vectoradd", "1000", "--repeat", "100000000"], env);
  await pool.connected(1);
  expect((await startProgram(examples, ["vectoradd", "1000"], env).finished).status).toBe(0);
  await until(
    "one session of the claim",
    () => pool.usage(),
    ({ sessions }) => sessions.length === 1,
    withinMs,
  );
  expect((await pool.usage()).claims).toHaveLength(1);
  other.signal("SIGKILL");
  await other.finished;
  await until(
    "a claim without a session",
    () => pool.usage(),
    ({ sessions }) => sessions.length === 0,
    withinMs,
  );
  expect((await pool.usage()).claims).toHaveLength(1);
  holder.endInput("\n");
  expect((await holder.finished).status).toBe(0);
  await allIsBack();
});
