// SPDX-License-Identifier: Apache-2.0
// Programs of lazy claims that are idle and hold no memory: others have their share meanwhile, and they do not notice.
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { nativeDir } from "../../scripts/lib/paths.ts";
import { Pool, until } from "../support/pool.ts";
import { childOf, type Program, startProgram } from "../support/program.ts";

const programs = join(nativeDir("release"), "driver_programs");

let pool: Pool;
beforeAll(async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "128Mi");
});
afterAll(async () => {
  await pool[Symbol.asyncDispose]();
});

function startShell(name: string, transport: string): Program {
  const options = ["--lazy", "--lazy-idle", "1s", "--name", name, "--transport", transport];
  return pool.start(["run", ...options, "--", programs, "shell"]);
}

/** Makes the shell do something, and waits until it is done. */
async function has(shell: Program, ...commands: readonly string[]): Promise<void> {
  for (const command of commands) {
    const done = shell.stdout.split("done").length;
    shell.type(`${command}\n`);
    await shell.says("stdout", new RegExp(`(done: \\w+\\n){${done}}`));
    expect(shell.stdout.trimEnd().split("\n").at(-1)).toBe(`done: ${command}`);
  }
}

async function sleeps(name: string): Promise<void> {
  await until(
    `${name} asleep`,
    () => pool.claimState(name),
    (state) => state === "CLAIM_STATE_DORMANT",
  );
  await until(
    "devices that nobody holds",
    () => pool.usage(),
    ({ devices }) => devices.length === 0,
  );
}

/** Resolves with the sessions once there are `count`. */
async function sessions(count: number): Promise<readonly string[]> {
  const usage = await until(
    `${count} sessions`,
    () => pool.usage(),
    (now) => now.sessions.length === count,
  );
  return usage.sessions;
}

it.each(["shm", "tcp"])(
  "over %s a program that thinks gives its GPU to others, and waits for its turn when it goes on",
  async (transport) => {
    const shell = startShell("thinker", transport);
    await has(shell, "look", "work", "count", "compute");
    await sleeps("thinker");

    const other = pool.startHolder([]);
    await sessions(1);
    expect(await pool.claimState("thinker")).toBe("CLAIM_STATE_DORMANT");
    shell.type("count\ncompute\n");
    await shell.says("stderr", /waiting for thinker: /);
    expect(await pool.claimState("thinker")).toBe("CLAIM_STATE_PENDING");
    other.signal("SIGINT");
    await other.finished;
    await shell.says("stdout", /(done: \w+\n){6}/);

    // The memory that it holds is not released, and `describe` and `why` report it as the reason.
    await has(shell, "hold");
    const reason = /^ *(Not parked|idle)\b.*\bit has [\d.]+ \w+ of device memory$/ms;
    for (const ask of [
      ["describe", "claim", "thinker"],
      ["why", "thinker"],
    ]) {
      await until(
        `${ask[0]} to tell why it is not parked`,
        () => pool.millpond(ask),
        ({ stdout }) => reason.test(stdout),
      );
    }
    const before = await sessions(1);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    expect(await sessions(1)).toEqual(before);
    await has(shell, "drop");
    await sleeps("thinker");
    expect((await pool.millpond(["describe", "claim", "thinker"])).stdout).not.toMatch(reason);
    await pool.millpond(["resize", "thinker", "-m", "16Mi"]);
    await has(shell, "compute");
    // The program now ends without a GPU.
    await sleeps("thinker");
    shell.endInput();
    expect(await shell.finished).toMatchObject({ status: 0, stdout: expect.stringMatching(/shell: OK\n$/) });
    await pool.isClean();
  },
);

it("a program that is killed while it is parked leaves nothing", async () => {
  const shell = startShell("shared", "tcp");
  await has(shell, "work");
  await sleeps("shared");
  process.kill(childOf(shell.pid), "SIGKILL");
  expect((await shell.finished).status).toBe(137);
  await pool.isClean();
});

it("a program whose claim has ended while it was parked is told so at its next call", async () => {
  const holder = pool.start(["run", "--lazy", "--lazy-idle", "1s", "--name", "gone", "--", "cat"]);
  const env = pool.containerEnvironment({ MILLPOND_CLAIM: "gone", MILLPOND_TRANSPORT: "shm" });
  await until(
    "the claim",
    () => pool.usage(),
    ({ claims }) => claims.includes("gone"),
  );
  const shell = startProgram(programs, ["shell"], env, "pipe");
  await has(shell, "work");
  await sleeps("gone");
  holder.endInput();
  await holder.finished;
  shell.type("work\n");
  const { status, stderr } = await shell.finished;
  expect(stderr).toMatch(/the GPU of this process is gone: gone has ended: .*MILLPOND_E_CLAIM_ENDED/);
  expect(status).toBe(1);
  await pool.isClean();
});

it("of two programs of a claim each is parked by itself, and the last one frees the devices", async () => {
  const one = startShell("both", "shm");
  await has(one, "work");
  const env = pool.containerEnvironment({ MILLPOND_CLAIM: "both", MILLPOND_TRANSPORT: "tcp" });
  const two = startProgram(programs, ["shell"], env, "pipe");
  await has(two, "hold");
  await sessions(1);
  await has(one, "work");
  await sessions(1);
  expect(await pool.claimState("both")).toBe("CLAIM_STATE_BOUND");
  await has(two, "drop");
  await sleeps("both");
  await Promise.all([has(one, "work"), has(two, "work")]);
  two.endInput();
  expect((await two.finished).status).toBe(0);
  one.endInput();
  expect((await one.finished).status).toBe(0);
  await pool.isClean();
});
