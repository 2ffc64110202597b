// SPDX-License-Identifier: Apache-2.0
// One release of difference between the parts of a pool, under a program that runs: the table of docs/upgrade.md.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { root } from "../../scripts/lib/paths.ts";
import { agentArguments } from "../support/agent.ts";
import { clientDirectory, examples, type NodeView, type SessionView, until } from "../support/pool.ts";
import { missingPrevious, unpackPrevious } from "../support/previous-release.ts";
import { Program, startProgram } from "../support/program.ts";

const why = missingPrevious === undefined ? "" : ` (${missingPrevious})`;

test.skipIf(missingPrevious !== undefined)(
  `controllers and commands of the release before work with this one's, also after a downgrade${why}`,
  { timeout: 600_000 },
  async () => {
    const directory = mkdtempSync(join(tmpdir(), "millpond-skew-"));
    const previous = join(directory, "previous");
    unpackPrevious(previous);
    const state = join(directory, "state");
    const environment: Record<string, string | undefined> = { PATH: process.env["PATH"], HOME: directory };
    const running: Program[] = [];
    onTestFinished(async () => {
      for (const program of running) program.signal("SIGTERM");
      await Promise.all(running.map(({ finished }) => finished));
      rmSync(directory, { recursive: true, force: true });
    });
    const start = (program: string, args: readonly string[]): Program => {
      const started = new Program(
        spawn(process.execPath, [program, ...args], { cwd: directory, env: environment }),
      );
      running.push(started);
      return started;
    };
    const startController = async (release: string, listen: string): Promise<Program> => {
      const args = ["--state", state, "--listen", listen];
      const controller = start(join(release, "controller", "src", "main.ts"), args);
      await controller.says("stderr", /listens at http/);
      return controller;
    };
    const stop = async (program: Program): Promise<void> => {
      program.signal("SIGTERM");
      expect((await program.finished).status).toBe(0);
    };
    const millpond = async (release: string, ...args: readonly string[]): Promise<string> => {
      const { status, stdout, stderr } = await start(
        release === root ? entry : join(release, "cli", "bin", "millpond.mjs"),
        args,
      ).finished;
      expect([args, status, stderr]).toEqual([args, 0, ""]);
      return stdout;
    };
    const list = async <T>(release: string, kind: string): Promise<readonly T[]> =>
      (JSON.parse(await millpond(release, "get", kind, "-o", "json")) as { readonly items: readonly T[] })
        .items;
    const example = (...args: readonly string[]): Program =>
      startProgram(
        examples,
        args,
        { ...environment, LD_LIBRARY_PATH: clientDirectory, MILLPOND_MEMORY: "64Mi" },
        "pipe",
      );

    let controller = await startController(previous, "127.0.0.1:0");
    const url = /listens at (http:\/\/[^"]+)"/.exec(controller.stderr)?.[1] ?? "";
    environment["MILLPOND_CONTROLLER"] = url;
    environment["MILLPOND_TOKEN"] = readFileSync(join(state, "user.token"), "utf8").trim();
    const tokenFile = join(state, "agent.token");
    const [command = "", ...of] = agentArguments({
      name: "node-a",
      controller: url,
      tokenFile,
      run: join(directory, "run"),
    });
    start(entry, [command, ...of]);
    for (const release of [previous, root]) {
      await until(
        "the agent of this release at the controller of the one before",
        () => list<NodeView>(release, "nodes"),
        ([node]) => node?.state === "ready",
      );
    }
    const program = example("memhold", "8");
    await program.says("stdout", /holds 8 MiB/);
    const [session] = await until(
      "the session",
      () => list<SessionView>(previous, "sessions"),
      ([one]) => one?.state === "connected",
    );

    await stop(controller);
    controller = await startController(root, new URL(url).host);
    for (const release of [previous, root]) {
      await until(
        "the session at the controller of this release",
        () => list<SessionView>(release, "sessions"),
        ([same]) => same?.id === session?.id && same?.state === "connected",
      );
    }
    await millpond(previous, "version");
    await millpond(root, "key", "rotate");
    const next = example("vectoradd", "1000");
    expect(await next.finished).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("vectoradd: OK"),
    });

    await stop(controller);
    const back = start(join(previous, "controller", "src", "main.ts"), [
      "--state",
      state,
      "--listen",
      "127.0.0.1:0",
    ]);
    expect((await back.finished).stderr).toContain("[MILLPOND_E_STATE_NEWER]");
    expect(await millpond(root, "downgrade", "--state", state)).toContain("start its controller");
    for (const release of [previous, root]) {
      controller = await startController(release, new URL(url).host);
      await until(
        "the session at the controller of the release before, and of this one again",
        () => list<SessionView>(previous, "sessions"),
        ([same]) => same?.id === session?.id && same?.state === "connected",
      );
      const later = example("vectoradd", "1000");
      expect(await later.finished).toMatchObject({
        status: 0,
        stdout: expect.stringContaining("vectoradd: OK"),
      });
      if (release === previous) await stop(controller);
    }
    program.endInput();
    expect(await program.finished).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("memhold: OK"),
      stderr: "",
    });
  },
);
