// SPDX-License-Identifier: Apache-2.0
// The years of a pool, in random order, under programs that run: none of them ends, and no grant is lost or double.
import { expect, onTestFinished, test } from "vitest";
import {
  computePercent,
  LongLivedPool,
  memoryMiB,
  type PoolEvent,
  possibleEvents,
} from "../support/long-lived-pool.ts";
import { until } from "../support/pool.ts";
import type { Program } from "../support/program.ts";
import { Random } from "../support/random.ts";

const rounds = Number(process.env["MILLPOND_ROUNDS"] ?? 3);
const seed = Number(process.env["MILLPOND_ROUNDS_SEED"] ?? 1);
const running = Number(process.env["MILLPOND_ROUNDS_PROGRAMS"] ?? 20);

test(`${rounds} rounds of seed ${seed} end no program, and lose or double no grant`, {
  timeout: 300_000 + rounds * 180_000,
}, async () => {
  const random = new Random(seed);
  const pool = await LongLivedPool.start();
  const programs: Program[] = [];
  onTestFinished(async () => {
    for (const program of programs) program.signal("SIGKILL");
    await Promise.all(programs.map(({ finished }) => finished));
    await pool[Symbol.asyncDispose]();
  });
  const begin = async (): Promise<void> => {
    const program = pool.startProgram();
    programs.push(program);
    await program.says("stdout", /holds 8 MiB/, 300_000);
  };
  /** Ends one program, which first checks its device memory. */
  const end = async (program: Program): Promise<void> => {
    programs.splice(programs.indexOf(program), 1);
    program.endInput();
    expect(await program.finished).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("memhold: OK"),
      // A program that starts after a restore waits until it is known what runs.
      stderr: expect.not.stringMatching(/error|gone|lost/) as string,
    });
  };
  /** One connected session for each program, and a claim of its size for each session. */
  const settled = async () => {
    try {
      return await untilSettled();
    } catch (error) {
      const served = new Set((await pool.sessions()).map(({ clientPid }) => clientPid));
      const without = programs.filter(({ pid }) => !served.has(pid));
      throw new Error(
        [
          `programs without a session: ${without.map(({ pid, stdout, stderr }) => JSON.stringify({ pid, stdout, stderr })).join("\n")}`,
          `claims that wait: ${(await pool.pendingClaims()).join(" ")}`,
          `events:\n${await pool.millpond("get", "events", "--absolute")}`,
          `the agent's log:\n${pool.agentLog.slice(-20_000)}`,
        ].join("\n\n"),
        { cause: error },
      );
    }
  };
  const untilSettled = async () =>
    await until(
      "a session and a claim for each program",
      async () => {
        const sessions = await pool.sessions();
        return { sessions, claims: await pool.boundClaims(), devices: await pool.devices() };
      },
      ({ sessions, claims, devices }) =>
        sessions.length === programs.length &&
        sessions.every(({ transport }) => transport !== "") &&
        claims.toSorted().join() ===
          sessions
            .map(({ claim }) => claim)
            .toSorted()
            .join() &&
        sum(devices.map((device) => device.allocatedComputePercent)) === programs.length * computePercent &&
        sum(devices.map((device) => Number(device.allocatedMemoryBytes))) ===
          programs.length * memoryMiB * 2 ** 20,
      300_000,
    );

  for (let made = 0; made < running; made += 1) await begin();
  let known = new Set((await settled()).sessions.map(({ id }) => id));
  const seen = new Map<PoolEvent, number>();
  let round = 0;
  onTestFinished(() => {
    console.log(`rounds: ${round}, seed ${seed}: ${JSON.stringify(Object.fromEntries(seen))}`);
  });
  for (; round < rounds; round += 1) {
    const events = Array.from({ length: 3 }, () => random.pick(possibleEvents));
    for (const event of events) {
      await pool.happen(event, random);
      seen.set(event, (seen.get(event) ?? 0) + 1);
    }
    const { sessions } = await settled();
    expect([events, new Set(sessions.map(({ id }) => id))]).toEqual([events, known]);
    // New programs get what others release, even under new keys and tokens.
    await end(random.pick(programs));
    await begin();
    known = new Set((await settled()).sessions.map(({ id }) => id));
  }
  while (programs.length > 0) await Promise.all(programs.slice(0, 4).map(end));
  await until(
    "no claims",
    () => pool.boundClaims(),
    (claims) => claims.length === 0,
    300_000,
  );
});

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
