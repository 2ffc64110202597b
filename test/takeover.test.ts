// SPDX-License-Identifier: Apache-2.0
// Programs on a pool with two controllers, of which the one that leads is killed.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { Cluster } from "@millpond/controller/testing/cluster";
import { missingPostgres } from "@millpond/controller/testing/postgres-server";
import { agentArguments } from "./support/agent.ts";
import { examples } from "./support/pool.ts";
import { Program } from "./support/program.ts";

const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;

function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "millpond-takeover-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

test.skipIf(missingPostgres !== undefined)(
  `programs run on while another controller takes over, and those that come meanwhile wait for it${why}`,
  async () => {
    const cluster = await Cluster.start([0, 0]);
    onTestFinished(() => cluster[Symbol.asyncDispose]());
    const directory = makeDirectory();
    const millpond = (...args: readonly string[]) =>
      new Program(
        spawn(process.execPath, [entry, ...args], {
          cwd: directory,
          env: {
            PATH: process.env["PATH"],
            HOME: directory,
            MILLPOND_CONTROLLER: cluster.urls,
            MILLPOND_TOKEN: cluster.userToken,
          },
          stdio: ["pipe", "pipe", "pipe"],
        }),
      );
    const example = (...args: readonly string[]) =>
      millpond("run", "-m", "64Mi", "--service-class", "burstable", "--", ...args);
    const tokenFile = join(directory, "agent.token");
    writeFileSync(tokenFile, cluster.agentToken, { mode: 0o600 });
    const at = { name: "node-a", controller: cluster.urls, tokenFile, run: join(directory, "run") };
    const agent = millpond(...agentArguments(at));
    onTestFinished(async () => {
      agent.signal("SIGTERM");
      await agent.finished;
    });

    // One program that runs all the time, and one claim with a program after the other.
    const lasting = example(examples, "memhold", "8");
    const loop = `for i in 1 2 3 4 5 6; do ${examples} vectoradd 1000 && sleep 0.5 || exit 1; done`;
    const inTurns = example("sh", "-c", loop);
    await inTurns.says("stdout", /vectoradd: OK/, 60_000);
    const repair = await cluster.strike("leader killed");
    const late = example(examples, "vectoradd", "1000");
    expect(await late.finished).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("vectoradd: OK"),
    });
    expect(await inTurns.finished).toMatchObject({ status: 0 });
    await repair();
    const { listen } = await cluster.untilLed();
    const follower = cluster.urls.split(",").find((url) => url !== `http://${listen}`) ?? "";
    const { stdout } = await millpond("version", "--controller", follower).finished;
    expect(stdout).toContain(`at ${follower}; the leader is at http://${listen}\n`);
    lasting.signal("SIGINT");
    expect(await lasting.finished).toMatchObject({ status: 130 });
  },
);
