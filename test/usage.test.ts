// SPDX-License-Identifier: Apache-2.0
// Usage of a program is known whichever of the counting processes is killed.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { ControllerProcess } from "@millpond/controller/testing/controller-process";
import { agentArguments } from "./support/agent.ts";
import { examples, until } from "./support/pool.ts";
import { Program } from "./support/program.ts";

test("what a program uses is counted on while its controller, and then its agent, is killed", async () => {
  const directory = mkdtempSync(join(tmpdir(), "millpond-usage-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const state = join(directory, "controller");
  let controller = await ControllerProcess.start(state);
  onTestFinished(async () => void (await controller.end("SIGKILL")));
  const { url, userToken } = controller;
  const millpond = (...args: readonly string[]) => {
    const env = {
      PATH: process.env["PATH"],
      HOME: directory,
      MILLPOND_CONTROLLER: url,
      MILLPOND_TOKEN: userToken,
    };
    const program = new Program(
      spawn(process.execPath, [entry, ...args], { cwd: directory, env, stdio: ["pipe", "pipe", "pipe"] }),
    );
    onTestFinished(() => program.signal("SIGKILL"));
    return program;
  };
  const tokenFile = join(state, "agent.token");
  const startAgent = () =>
    millpond(...agentArguments({ name: "node-a", controller: url, tokenFile, run: join(directory, "run") }));
  const list = async <T>(...args: readonly string[]): Promise<readonly T[]> => {
    const { status, stdout, stderr } = await millpond(...args, "-o", "json").finished;
    if (status !== 0) throw new Error(stderr);
    return (JSON.parse(stdout) as { readonly items: readonly T[] }).items;
  };
  const used = async () =>
    ((await list<{ readonly usedGpuHours: number }>("usage"))[0]?.usedGpuHours ?? 0) * 3600;
  const isRunning = async () => (await list("get", "sessions")).length === 1;
  let agent = startAgent();
  const endless = millpond("run", "--", examples, "vectoradd", "1000", "--repeat", "100000000");
  const before = await until("some use", used, (seconds) => seconds >= 5);

  await controller.end("SIGKILL");
  controller = await ControllerProcess.start(state, { listen: new URL(url).host });
  await until("word of the agent", isRunning, Boolean);
  const afterwards = await used();
  expect(afterwards).toBeGreaterThanOrEqual(before);

  agent.signal("SIGKILL");
  await agent.finished;
  agent = startAgent();
  const more = await until("more use", used, (seconds) => seconds >= afterwards + 3);
  await controller.end("SIGKILL");
  controller = await ControllerProcess.start(state, { listen: new URL(url).host });
  await until("word of the agent", isRunning, Boolean);
  expect(await used()).toBeGreaterThanOrEqual(more);

  endless.signal("SIGINT");
  expect((await endless.finished).status).toBe(130);
  agent.signal("SIGTERM");
  await agent.finished;
});
