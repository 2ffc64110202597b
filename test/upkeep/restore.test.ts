// SPDX-License-Identifier: Apache-2.0
// An older state is put back under programs that run.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { Lists } from "@millpond/cli/testing/lists";
import { ControllerProcess } from "@millpond/controller/testing/controller-process";
import { agentArguments } from "../support/agent.ts";
import { type ClaimView, examples, type NodeView, type SessionView, until } from "../support/pool.ts";
import { Program } from "../support/program.ts";
import { Random } from "../support/random.ts";

/** How often a state is restored: each time takes the 15 s in which nothing is granted. */
const rounds = Number(process.env["MILLPOND_RESTORE_ROUNDS"] ?? 2);
const seed = Number(process.env["MILLPOND_RESTORE_SEED"] ?? 1);
const mostPrograms = 6;

test("no program ends, nothing is granted twice, and the agent obeys", {
  timeout: 300_000 + rounds * 300_000,
}, async () => {
  const random = new Random(seed);
  const directory = mkdtempSync(join(tmpdir(), "millpond-restore-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const state = join(directory, "state");
  let controller = await ControllerProcess.start(state);
  const { url, userToken, agentToken } = controller;
  onTestFinished(async () => {
    await controller.end("SIGKILL");
  });
  const millpond = (...args: readonly string[]) =>
    new Program(
      spawn(process.execPath, [entry, ...args], {
        cwd: directory,
        env: {
          PATH: process.env["PATH"],
          HOME: directory,
          MILLPOND_CONTROLLER: url,
          MILLPOND_TOKEN: userToken,
        },
        stdio: ["pipe", "pipe", "pipe"],
      }),
    );
  const ask = async (...args: readonly string[]): Promise<string> => {
    const { status, stdout, stderr } = await millpond(...args).finished;
    expect(stderr).toBe("");
    expect(status).toBe(0);
    return stdout;
  };
  const lists = new Lists({ controller: url, token: userToken });

  const tokenFile = join(directory, "agent.token");
  writeFileSync(tokenFile, agentToken, { mode: 0o600 });
  const agent = millpond(
    ...agentArguments({ name: "node-a", controller: url, tokenFile, run: join(directory, "run") }),
  );
  onTestFinished(async () => {
    agent.signal("SIGTERM");
    await agent.finished;
  });
  await until(
    "the node",
    () => lists.nodes<NodeView>(),
    (nodes) => nodes.some((node) => node.state === "ready"),
  );

  const programs = new Map<string, Program>();
  onTestFinished(async () => {
    for (const program of programs.values()) program.signal("SIGINT");
    await Promise.all([...programs.values()].map(({ finished }) => finished));
  });
  let made = 0;
  const start = async (): Promise<void> => {
    made += 1;
    const name = `program-${made}`;
    const asked = ["-m", "64Mi", "-c", "10", "--name", name];
    programs.set(name, millpond("run", ...asked, "--", examples, "memhold", "8"));
    await sessionsAre();
  };
  /** Ends one program, which first checks its device memory. */
  const stop = async (): Promise<void> => {
    const name = random.pick([...programs.keys()]);
    const program = programs.get(name);
    programs.delete(name);
    program?.endInput();
    expect(await program?.finished).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("memhold: OK") as string,
    });
  };
  const sessionsAre = () =>
    until(
      "the sessions of all programs",
      () => lists.sessions<SessionView>(),
      (sessions) =>
        sessions.every((session) => session.state === "connected") &&
        sessions
          .map(({ claim }) => claim)
          .toSorted()
          .join() === [...programs.keys()].toSorted().join(),
    );

  await start();
  for (let round = 0; round < rounds; round += 1) {
    const said = await ask("backup");
    const backup = /written (\S+) on/.exec(said)?.[1] ?? "";
    // What the backup does not know: programs that start and end, some of them on devices where others were.
    for (let change = 0; change < 4; change += 1) {
      if (programs.size < 2 || (programs.size < mostPrograms && random.chance(0.7))) await start();
      else await stop();
    }
    const before = await sessionsAre();
    await controller.end(random.pick(["SIGKILL", "SIGTERM"]));
    expect(await ask("restore", backup, "--state", state)).toContain("restored ");
    controller = await ControllerProcess.start(state, { listen: new URL(url).host });

    const after = await sessionsAre();
    expect(after.map(({ id }) => id).toSorted()).toEqual(before.map(({ id }) => id).toSorted());
    // New ones wait until everything is known, and then get what is left.
    await start();
    const claims = await lists.claims<ClaimView>();
    expect(claims.filter((claim) => claim.state === "bound").map(({ name }) => name)).toEqual(
      expect.arrayContaining([...programs.keys()]),
    );
    const granted = await lists.devices<{
      readonly allocatedComputePercent: number;
      readonly allocatedMemoryBytes: number;
      readonly memoryBytes: number;
    }>();
    for (const device of granted) {
      expect(device.allocatedComputePercent).toBeLessThanOrEqual(100);
      expect(device.allocatedMemoryBytes).toBeLessThanOrEqual(device.memoryBytes);
    }
    for (const { stderr } of programs.values()) expect(stderr).not.toMatch(/loses|gone|ended/);
  }
  while (programs.size > 0) await stop();
  expect(agent.stderr).not.toContain("MILLPOND_E_NOT_LEADER: the answer is of term");
});
