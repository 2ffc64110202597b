// SPDX-License-Identifier: Apache-2.0
// What a compromised worker can reach: its driver is the software GPU with hostile code in it.
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { inRoot, nativeDir, root } from "../scripts/lib/paths.ts";
import { agentArguments } from "./support/agent.ts";
import { Pool, until } from "./support/pool.ts";
import { Program } from "./support/program.ts";

const hostileDriver = join(nativeDir("release"), "worker", "libmillpond_hostile_driver.so");

/** Runs a program on a node whose driver is hostile, and returns what its workers wrote down. */
async function attack(pool: Pool): Promise<string> {
  const { stdout: token } = await pool.millpond(["token", "create", "hostile", "--role", "agent"]);
  const tokenFile = join(pool.directory, "hostile.token");
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const controller = pool.containerEnvironment({})["MILLPOND_CONTROLLER"] ?? "";
  const run = join(pool.directory, "hostile");
  const agent = pool.start(
    [...agentArguments({ name: "hostile", controller, tokenFile, run }), "--driver", hostileDriver],
    {
      MILLPOND_SOFTGPU_DEVICES: "1",
      MILLPOND_SOFTGPU_SEED: "hostile",
      MILLPOND_SOFTGPU_SECRET: tokenFile,
      SECRET: "x",
    },
  );
  await using stack = new AsyncDisposableStack();
  stack.defer(async () => {
    agent.signal("SIGTERM");
    await agent.finished;
  });
  await until(
    "the hostile node",
    () => pool.nodes(),
    (nodes) => nodes.some((node) => node.name === "hostile" && node.state === "ready"),
  );
  for (const { name } of await pool.nodes()) if (name !== "hostile") await pool.millpond(["cordon", name]);
  const program = pool.startEndless(["-m", "256Mi"]);
  stack.defer(async () => {
    program.signal("SIGTERM");
    await program.finished;
  });
  const reports = async () =>
    readdirSync(join(run, "workers"))
      .map((id) => join(run, "workers", id, "attack.txt"))
      .filter((path) => existsSync(path))
      .map((path) => readFileSync(path, "utf8"));
  const [report = ""] = await until(
    "the attack",
    reports,
    ([text]) => text?.includes("start a program") === true,
  );
  // The agent is there still, and serves.
  expect((await pool.run(["-m", "256Mi"], ["vectoradd", "1000"])).stdout).toContain("vectoradd: OK");
  return report;
}

function expectNothingGained(report: string): void {
  const attempts = report.split("\n").filter((line) => /: (DONE|refused)$/.test(line));
  expect(attempts.filter((line) => line.endsWith("DONE"))).toEqual([]);
  expect(attempts.length).toBeGreaterThanOrEqual(20);
  // It has the table mapped and can write there; others go on all the same.
  expect(Number(/^overwrote (\d+) bytes$/m.exec(report)?.[1])).toBeGreaterThan(100_000);
  const environment = [...report.matchAll(/^environment (\w+)$/gm)].map(([, name]) => name);
  expect(
    environment.filter(
      (name) => !/^(CUDA_CACHE_PATH|LD_LIBRARY_PATH|LANG|TZ|MILLPOND_(LOG|SOFTGPU_\w+))$/.test(name ?? ""),
    ),
  ).toEqual([]);
}

test("hostile code in a worker of an agent that anybody may run gains nothing", async () => {
  await using pool = await Pool.start("--devices", "1");
  expectNothingGained(await attack(pool));
});

const isRoot = process.getuid?.() === 0;
test.skipIf(!isRoot)(
  "hostile code in a worker of an agent that is root is nobody's user and gains nothing",
  async () => {
    await using pool = await Pool.start("--devices", "1");
    // As /run/millpond: every user may pass.
    chmodSync(pool.directory, 0o755);
    const report = await attack(pool);
    expectNothingGained(report);
    expect(report).toMatch(/^user 1900000000$/m);
  },
);

/** Starts a program with the capabilities of the agent's container in a cluster, and no others. */
const inContainer = (() => {
  const manifest = readFileSync(inRoot("kubernetes", "deploy", "pool", "workers.yaml"), "utf8");
  const [, added = ""] = /capabilities: \{drop: \[ALL\], add: \[([A-Z_, ]+)\]\}/.exec(manifest) ?? [];
  const capabilities = added.split(", ").map((each) => `+${each.toLowerCase()}`);
  return [
    "setpriv",
    "--bounding-set",
    ["-all", ...capabilities].join(","),
    "--inh-caps=-all",
    "--no-new-privs",
  ];
})();
const isContainable = isRoot && spawnSync("setpriv", ["--version"]).status === 0;

/** The users of the workers that run. */
function workerUsers(run: string): string[] {
  return readdirSync(join(run, "records"))
    .filter((name) => name.endsWith(".json"))
    .flatMap((name) => {
      try {
        const text = readFileSync(join(run, "records", name), "utf8");
        const { pid } = (JSON.parse(text) as { process: { pid: number } }).process;
        return /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? [];
      } catch {
        return []; // It ended meanwhile.
      }
    });
}

test.skipIf(!isContainable)(
  "an agent with the rights of its container starts workers as another user",
  async () => {
    await using pool = await Pool.start("--devices", "1");
    await using stack = new AsyncDisposableStack();
    // As /run/millpond: every user may pass.
    chmodSync(pool.directory, 0o755);
    const { stdout: token } = await pool.millpond(["token", "create", "contained", "--role", "agent"]);
    const tokenFile = join(pool.directory, "contained.token");
    writeFileSync(tokenFile, token, { mode: 0o600 });
    const controller = pool.containerEnvironment({})["MILLPOND_CONTROLLER"] ?? "";
    const run = join(pool.directory, "contained");
    // A name as many clusters give to their nodes.
    const name = "ip-10-0-0-1.example.internal";
    const [command = "", ...args] = [
      ...inContainer,
      process.execPath,
      join(root, "cli", "bin", "millpond.mjs"),
      ...agentArguments({ name, controller, tokenFile, run }),
    ];
    const agent = new Program(
      spawn(command, args, {
        cwd: pool.directory,
        env: {
          PATH: process.env["PATH"],
          HOME: pool.directory,
          MILLPOND_CONFIG: join(pool.directory, "config.json"),
          MILLPOND_SOFTGPU_DEVICES: "1",
          MILLPOND_SOFTGPU_SEED: name,
        },
        stdio: ["pipe", "pipe", "pipe"],
      }),
    );
    stack.defer(async () => {
      agent.signal("SIGTERM");
      await agent.finished;
    });
    const isReady = until(
      "the node",
      () => pool.nodes(),
      (nodes) => nodes.some((node) => node.name === name && node.state === "ready"),
    );
    const hasEnded = agent.finished.then(({ stderr }) => {
      throw new Error(`the agent has ended: ${stderr}`);
    });
    await Promise.race([isReady, hasEnded]);
    hasEnded.catch(() => undefined);
    for (const node of await pool.nodes()) if (node.name !== name) await pool.millpond(["cordon", node.name]);
    const { status, stdout, stderr } = await pool.run(["-m", "256Mi"], ["vectoradd", "1000"]);
    expect([status, stdout, stderr]).toEqual([
      0,
      expect.stringContaining("vectoradd: OK"),
      expect.anything(),
    ]);
    const users = await until(
      "a worker that waits for a session",
      () => Promise.resolve(workerUsers(run)),
      (found) => found.length > 0,
    );
    expect(new Set(users)).toEqual(new Set(["1900000000"]));
    // It can end them, and take away what was theirs.
    agent.signal("SIGTERM");
    expect(await agent.finished).toMatchObject({ status: 0 });
    expect(readdirSync(join(run, "workers"))).toEqual([]);
  },
);
