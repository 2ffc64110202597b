// SPDX-License-Identifier: Apache-2.0
// The pool's keys are replaced while an agent does not run, as on a host that is being repaired.
import { expect, onTestFinished, test } from "vitest";
import { LongLivedPool } from "../support/long-lived-pool.ts";
import { until } from "../support/pool.ts";
import type { Program } from "../support/program.ts";

test("an agent that was down while the signing keys were revoked serves its sessions, and programs that start later", {
  timeout: 600_000,
}, async () => {
  const pool = await LongLivedPool.start();
  const programs: Program[] = [];
  onTestFinished(async () => {
    for (const program of programs) program.signal("SIGKILL");
    await Promise.all(programs.map(({ finished }) => finished));
    await pool[Symbol.asyncDispose]();
  });
  const begin = (): Program => {
    const program = pool.startProgram();
    programs.push(program);
    return program;
  };
  const end = async (program: Program): Promise<void> => {
    program.endInput();
    expect(await program.finished).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("memhold: OK"),
      stderr: expect.not.stringMatching(/error|gone|lost/) as string,
    });
  };
  const before = begin();
  await before.says("stdout", /holds 8 MiB/, 300_000);
  // Agents report their sessions with their next heartbeat.
  const sessionsOnceThereAre = async (count: number) =>
    await until(
      `${count} sessions`,
      () => pool.sessions(),
      ({ length }) => length === count,
    );
  const [session] = await sessionsOnceThereAre(1);

  let meanwhile = before;
  await pool.whileNoAgentRuns(async () => {
    await pool.millpond("key", "rotate", "--revoke");
    await pool.millpond("key", "rotate", "--revoke");
    // Its ticket will be signed with a key that the agent has never seen.
    meanwhile = begin();
    await until(
      "the claim of a program that starts while no agent runs",
      () => pool.pendingClaims(),
      (claims) => claims.length === 1,
      300_000,
    );
  });
  await meanwhile.says("stdout", /holds 8 MiB/, 300_000);
  const after = begin();
  await after.says("stdout", /holds 8 MiB/, 300_000);
  const sessions = await sessionsOnceThereAre(3);
  expect(sessions.map(({ id }) => id)).toContain(session?.id);
  for (const program of [before, meanwhile, after]) await end(program);
});
