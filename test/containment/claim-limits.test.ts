// SPDX-License-Identifier: Apache-2.0
// Attacks of a tenant on the limits of its own claim, by many processes of stock programs: none of them gets more than the
// claim has, and a neighbour gets what it was promised.
import { afterEach, expect, it } from "vitest";
import { joinNode } from "../support/agent.ts";
import { examples, Pool, until } from "../support/pool.ts";
import { type Program, startProgram } from "../support/program.ts";

const mostSessions = 16;
const MiB = 2 ** 20;

let pool: Pool;
afterEach(async () => {
  await pool[Symbol.asyncDispose]();
});

/** Holds a claim until the result is disposed of; programs attach to it by its name. */
async function hold(name: string, ...options: string[]): Promise<Program> {
  const holder = pool.start(["run", "--name", name, ...options, "--", "sh", "-c", "echo held; read line"]);
  await holder.says("stdout", /held/);
  return holder;
}

/** Starts a program of the claim; its standard input stays open. */
function startIn(claim: string, ...args: string[]): Program {
  return startProgram(examples, args, pool.containerEnvironment({ MILLPOND_CLAIM: claim }), "pipe");
}

it("processes of a claim have its memory together, and a neighbour has all of its own", {
  timeout: 300_000,
}, async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "512Mi");
  const victim = await hold("victim", "-m", "256Mi", "-c", "25");
  const holder = await hold("attacker", "-m", "256Mi", "-c", "25");
  const first = startIn("attacker", "memhold", "192");
  await first.says("stdout", /holds 192 MiB/);
  const used = async () => {
    const session = (await pool.sessions()).find(({ claim }) => claim === "attacker");
    return session?.devices[0]?.memoryUsedBytes ?? 0;
  };
  await until("192 MiB in use", used, (bytes) => bytes === 192 * MiB);
  const attempts = await Promise.all([1, 2, 3].map(() => startIn("attacker", "memhog", "16").finished));
  for (const { stdout } of attempts) {
    // The last program may have got nothing at all, and ended before it reported how much.
    expect(Number(/of which free (\d+) MiB/.exec(stdout)?.[1] ?? 0)).toBeLessThanOrEqual(64);
    expect(Number(/16 MiB: (\d+) MiB/.exec(stdout)?.[1] ?? 0)).toBeLessThanOrEqual(64);
  }
  expect(attempts.some(({ status }) => status === 0)).toBe(true);
  const whole = await startIn("victim", "memhog", "16").finished;
  expect(whole.stdout).toMatch(/out of memory after 16 chunks of 16 MiB: 256 MiB/);
  // The memory of a killed program returns to its claim.
  first.signal("SIGKILL");
  await first.finished;
  await until("a claim with nothing in use", used, (bytes) => bytes === 0);
  const again = await startIn("attacker", "memhog", "16").finished;
  expect(again.stdout).toMatch(/out of memory after 16 chunks of 16 MiB: 256 MiB/);
  for (const each of [victim, holder]) {
    each.endInput();
    await each.finished;
  }
  await pool.isClean();
});

it(`a claim opens no more than ${mostSessions} sessions, and another gets its own meanwhile`, {
  timeout: 600_000,
}, async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1", "--device-memory", "4Gi");
  const holder = await hold("many", "-m", "64Mi", "-c", "1%");
  const attempts = 24;
  const programs = Array.from({ length: attempts }, () =>
    startIn("many", "vectoradd", "1000", "--repeat", "100000000"),
  );
  let refused = 0;
  const ends = programs.map(async (program) => {
    const { status, stderr } = await program.finished;
    if (status !== 0 && stderr.includes("MILLPOND_E_TOO_MANY_SESSIONS")) refused += 1;
  });
  const stopped = new Set<number>();
  await until(
    `${mostSessions} connected sessions`,
    () => pool.sessions(),
    (all) => {
      // Programs that wait are sufficient: they keep their sessions, and leave this machine's processors to those that start.
      for (const { state, clientPid } of all) {
        if (state === "connected" && !stopped.has(clientPid)) {
          process.kill(clientPid, "SIGSTOP");
          stopped.add(clientPid);
        }
      }
      return all.filter(({ state }) => state === "connected").length === mostSessions;
    },
    120_000,
  );
  const { status, stdout } = await pool.run(["-m", "64Mi", "-c", "25"], ["vectoradd", "1000"]);
  expect(stdout).toContain("vectoradd: OK");
  expect(status).toBe(0);
  expect((await pool.sessions()).filter(({ claim }) => claim === "many")).toHaveLength(mostSessions);
  // The last of them may still be starting.
  await expect.poll(() => refused).toBe(attempts - mostSessions);
  for (const program of programs) {
    program.signal("SIGTERM");
    program.signal("SIGCONT");
  }
  await Promise.all(ends);
  expect(refused).toBe(attempts - mostSessions);
  // Their places are free again.
  expect((await startIn("many", "deviceinfo").finished).status).toBe(0);
  holder.endInput();
  await holder.finished;
  await pool.isClean();
});

it("the driver's contexts of a claim's many sessions come out of the claim, and a neighbour keeps its memory", {
  timeout: 600_000,
}, async () => {
  const contextMiB = 96;
  const claimMiB = 320;
  const fit = 1 + Math.floor(claimMiB / contextMiB);
  pool = await Pool.start("--nodes", "1", "--devices", "1");
  const agent = await joinNode(pool, "with-contexts", ["--session-overhead", `${contextMiB}Mi`]);
  const victim = await hold("victim", "-m", "256Mi", "-c", "25");
  const holder = await hold("many", "-m", `${claimMiB}Mi`, "-c", "25");
  const used = async () => {
    const sessions = (await pool.sessions()).filter(({ claim }) => claim === "many");
    return sessions.reduce((sum, { devices }) => sum + (devices[0]?.memoryUsedBytes ?? 0), 0) / MiB;
  };
  const programs = Array.from({ length: 12 }, () => startIn("many", "memhold", "1"));
  const refused: string[] = [];
  for (const program of programs) {
    void program.finished.then(({ stderr }) => refused.push(stderr));
  }
  const serving = () => pool.sessions().then((all) => all.filter(({ state }) => state === "connected"));
  await until(
    "the refusals",
    async () => refused.length,
    (count) => count === programs.length - fit,
    120_000,
  );
  for (const stderr of refused) {
    expect(stderr).toContain("MILLPOND_E_TOO_MANY_SESSIONS");
    expect(stderr).toMatch(/the driver needs 96 MiB of device \S+ for one more, and of the claim's 320 MiB/);
  }
  await until("the sessions that fit", serving, (all) => all.length === fit);
  // All contexts except one are charged to the claim, together with its programs' memory.
  await until("contexts in use", used, (mib) => mib >= (fit - 1) * contextMiB + fit);
  expect(await used()).toBeLessThanOrEqual(claimMiB);
  const whole = await startIn("victim", "memhog", "16").finished;
  expect(whole.stdout).toMatch(/of which free 256 MiB/);
  expect(whole.stdout).toMatch(/out of memory after 16 chunks of 16 MiB: 256 MiB/);
  for (const program of programs) program.signal("SIGKILL");
  await Promise.all(programs.map((program) => program.finished));
  // One after the other, each uses the context beside the claim, and therefore gets all of the claim's memory.
  for (let i = 0; i < 3; ++i) {
    const { stdout, stderr } = await startIn("many", "memhog", "16").finished;
    expect(stderr).not.toContain("MILLPOND_E_TOO_MANY_SESSIONS");
    expect(stdout).toMatch(/out of memory after 20 chunks of 16 MiB: 320 MiB/);
  }
  for (const each of [victim, holder]) {
    each.endInput();
    await each.finished;
  }
  await pool.isClean();
  agent.signal("SIGTERM");
  await agent.finished;
});

it("a claim's many sessions end at its host memory, and another claim of the node gets its own", {
  timeout: 600_000,
}, async () => {
  pool = await Pool.start("--nodes", "1", "--devices", "1");
  // The workers account for two thirds of it: room for ten sessions of 64 MiB.
  const agent = await joinNode(pool, "host-memory", ["--claim-host-memory", "1Gi"]);
  const holder = await hold("many", "-m", "64Mi", "-c", "25");
  const programs = Array.from({ length: 13 }, () => startIn("many", "memhold", "1"));
  const refused: string[] = [];
  for (const program of programs) {
    void program.finished.then(({ stderr }) => refused.push(stderr));
  }
  await until(
    "the refusals",
    async () => refused.length,
    (count) => count === 3,
    120_000,
  );
  for (const stderr of refused) {
    expect(stderr).toContain("MILLPOND_E_TOO_MANY_SESSIONS");
    expect(stderr).toMatch(
      /a session needs 64 MiB of host memory, and the others .* 682\.6 MiB that it may have/,
    );
  }
  const { stdout } = await pool.run(["-m", "64Mi", "-c", "25"], ["vectoradd", "1000"]);
  expect(stdout).toContain("vectoradd: OK");
  for (const program of programs) program.signal("SIGKILL");
  await Promise.all(programs.map((program) => program.finished));
  holder.endInput();
  await holder.finished;
  await pool.isClean();
  agent.signal("SIGTERM");
  await agent.finished;
});
