// SPDX-License-Identifier: Apache-2.0
// What a compromised worker can reach: its driver is the software GPU with hostile code in it.
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { inRoot, nativeDir, root } from "../../scripts/lib/paths.ts";
import { agentArguments } from "../support/agent.ts";
import { Pool, until } from "../support/pool.ts";
import { Program } from "../support/program.ts";

const hostileDriver = join(nativeDir("release"), "worker", "libmillpond_hostile_driver.so");

/** The records that the workers of a node's two claims wrote, in the order in which the claims were created. */
interface Reports {
  readonly first: string;
  readonly second: string;
}

/** Process ids of the workers in a run directory, by the names of their folders. */
function workerPids(run: string): Map<string, number> {
  const records = readdirSync(join(run, "records")).filter((name) => name.endsWith(".json"));
  return new Map(
    records.map((name) => {
      const { process } = JSON.parse(readFileSync(join(run, "records", name), "utf8")) as {
        process: { pid: number };
      };
      return [name.replace(/\.json$/, ""), process.pid];
    }),
  );
}

/** Starts another node of a pool, and cordons the others. Returns its run directory. */
async function startNode(
  pool: Pool,
  stack: AsyncDisposableStack,
  { name, driver }: { readonly name: string; readonly driver?: string },
): Promise<string> {
  const { stdout: token } = await pool.millpond(["token", "create", name, "--role", "agent"]);
  const tokenFile = join(pool.directory, `${name}.token`);
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const controller = pool.containerEnvironment({})["MILLPOND_CONTROLLER"] ?? "";
  const run = join(pool.directory, name);
  const agent = pool.start(
    [
      ...agentArguments({ name, controller, tokenFile, run }),
      ...(driver === undefined ? [] : ["--driver", driver]),
    ],
    {
      MILLPOND_SOFTGPU_DEVICES: "1",
      MILLPOND_SOFTGPU_SEED: name,
      MILLPOND_SOFTGPU_SECRET: tokenFile,
      SECRET: "x",
    },
  );
  stack.defer(async () => {
    agent.signal("SIGTERM");
    await agent.finished;
  });
  await until(
    `the node ${name}`,
    () => pool.nodes(),
    (nodes) => nodes.some((node) => node.name === name && node.state === "ready"),
  );
  for (const node of await pool.nodes()) if (node.name !== name) await pool.millpond(["cordon", node.name]);
  return run;
}

/**
 * Runs the programs of two claims on a node whose driver is hostile, and returns the records that their workers wrote.
 * `look`: called with the run directory and the second worker's folder, while both run.
 */
async function attack(
  pool: Pool,
  look: (run: string, worker: string) => void = () => undefined,
): Promise<Reports> {
  await using stack = new AsyncDisposableStack();
  const run = await startNode(pool, stack, { name: "hostile", driver: hostileDriver });
  const seen = new Map<string, string>();
  const start = async (): Promise<string> => {
    const program = pool.startHolder(["-m", "256Mi", "-p", "0.25"]);
    stack.defer(async () => {
      program.signal("SIGTERM");
      await program.finished;
    });
    const unseen = async () =>
      readdirSync(join(run, "workers"))
        .filter((id) => !seen.has(id) && existsSync(join(run, "workers", id, "attack.txt")))
        .map((id) => ({ id, report: readFileSync(join(run, "workers", id, "attack.txt"), "utf8") }));
    const [found] = await until(
      "the attack",
      unseen,
      ([one]) => one?.report.includes("start a program") === true,
    );
    seen.set(found?.id ?? "", found?.report ?? "");
    return found?.id ?? "";
  };
  const [first, second] = [await start(), await start()];
  look(run, second);
  // The agent still exists, and works.
  expect((await pool.run(["-m", "256Mi", "-p", "0.25"], ["vectoradd", "1000"])).stdout).toContain(
    "vectoradd: OK",
  );
  // The second worker has tried the same as the first.
  expect(seen.get(second)).toContain(`victim ${workerPids(run).get(first)} has user `);
  return { first: seen.get(first) ?? "", second: seen.get(second) ?? "" };
}

/** Attempts that succeed if all workers run as the agent's user: they give access to no content. */
const ofOneUser = /^(list the files of \d+|list the tenants' images): DONE$/;

function expectNothingGained(report: string, { isOneUser = false } = {}): void {
  const attempts = report.split("\n").filter((line) => /: (DONE|refused)$/.test(line));
  const successes = attempts.filter((line) => line.endsWith("DONE"));
  expect(successes.filter((line) => !isOneUser || !ofOneUser.test(line))).toEqual([]);
  expect(attempts.length).toBeGreaterThanOrEqual(22);
  // It has the table mapped and can write to it; others continue nevertheless.
  expect(Number(/^overwrote (\d+) bytes$/m.exec(report)?.[1])).toBeGreaterThan(100_000);
  const environment = [...report.matchAll(/^environment (\w+)$/gm)].map(([, name]) => name);
  expect(
    environment.filter(
      (name) => !/^(CUDA_CACHE_PATH|LD_LIBRARY_PATH|LANG|TZ|MILLPOND_(LOG|SOFTGPU_\w+))$/.test(name ?? ""),
    ),
  ).toEqual([]);
}

function userOf(report: string): number {
  return Number(/^user (\d+)$/m.exec(report)?.[1]);
}

test("hostile code in a worker of an agent that anybody may run gains nothing", async () => {
  await using pool = await Pool.start("--devices", "1");
  const { first, second } = await attack(pool);
  for (const report of [first, second]) expectNothingGained(report, { isOneUser: true });
});

const isRoot = process.getuid?.() === 0;
const canSetUser = isRoot && spawnSync("setpriv", ["--version"]).status === 0;

test.skipIf(!canSetUser)(
  "hostile code in a worker of an agent that is root has a user that no other claim has, and gains nothing",
  async () => {
    await using pool = await Pool.start("--devices", "1");
    // Like /run/millpond: every user may traverse it.
    chmodSync(pool.directory, 0o755);
    const { first, second } = await attack(pool, (run, worker) => {
      const own = userOfWorker(workerPids(run).get(worker));
      const victims = [...workerPids(run)].filter(([id, pid]) => id !== worker && userOfWorker(pid) !== own);
      expect(victims.length).toBeGreaterThanOrEqual(1);
      // Without a worker's system call filter and file rules, the user alone keeps it out.
      for (const [id, pid] of victims) expect(reachable(own, run, id, pid)).toEqual([]);
      expect(reachable(own, run, worker, workerPids(run).get(worker) ?? 0)).toContain(
        `ls ${run}/workers/${worker}/jit`,
      );
    });
    for (const report of [first, second]) expectNothingGained(report);
    const users = [userOf(first), userOf(second)];
    expect(new Set(users).size).toBe(2);
    for (const user of users) {
      expect(user).toBeGreaterThan(1_900_000_000);
      expect(user).toBeLessThanOrEqual(1_900_065_535);
    }
    // The worker that waits for a third claim also runs as another user.
    const victims = [...second.matchAll(/^victim \d+ has user (\d+)$/gm)].map(([, user]) => Number(user));
    expect(victims).toContain(users[0]);
    expect(victims).not.toContain(users[1]);
    expect(second).not.toMatch(/^the socket of \d+ for its claim is open$/m);
  },
);

/** Which parts of a worker another process of that user can access when it is not contained otherwise. */
function reachable(user: number, run: string, id: string, pid: number): string[] {
  const [boot = ""] = readdirSync(join(run, "claims"));
  const claims = readdirSync(join(run, "claims", boot)).map((name) => join(run, "claims", boot, name));
  const tries = [
    `kill -0 ${pid}`,
    `cat /proc/${pid}/environ`,
    `ls /proc/${pid}/fd`,
    `ls ${run}/workers/${id}`,
    `ls ${run}/workers/${id}/jit`,
    `cat ${run}/workers/${id}/worker.log`,
    `ls ${run}/claims/${boot}`,
    `ls ${run}/images`,
    ...claims.filter((path) => statSync(path).uid !== user).map((path) => `ls ${path}`),
  ];
  const as = ["--reuid", String(user), "--regid", String(user), "--clear-groups"];
  return tries.filter((each) => spawnSync("setpriv", [...as, "sh", "-c", each]).status === 0);
}

function userOfWorker(pid: number | undefined): number {
  return Number(/^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
}

test.skipIf(!isRoot)(
  "sessions of a claim share memory and events under the user of their claim",
  async () => {
    await using pool = await Pool.start("--devices", "1");
    await using stack = new AsyncDisposableStack();
    // Like /run/millpond: every user may traverse it.
    chmodSync(pool.directory, 0o755);
    const run = await startNode(pool, stack, { name: "open" });
    const program = join(root, "build", "conformance", "bin", "driver");
    const { status, stdout, stderr } = await pool.millpond(["run", "-m", "256Mi", "--", program, "sharing"]);
    expect([status, stderr]).toEqual([0, ""]);
    expect(stdout).toBe(readFileSync(join(root, "conformance", "expected", "driver", "sharing.txt"), "utf8"));
    const users = [...workerPids(run).values()].map(userOfWorker);
    expect(Math.min(...users)).toBeGreaterThan(1_900_000_000);
  },
);

/** Starts a program with exactly the capabilities of the agent's container in a cluster. */
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

/** The users of the running workers. */
function workerUsers(run: string): string[] {
  return readdirSync(join(run, "records"))
    .filter((name) => name.endsWith(".json"))
    .flatMap((name) => {
      try {
        const text = readFileSync(join(run, "records", name), "utf8");
        const { pid } = (JSON.parse(text) as { process: { pid: number } }).process;
        return /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? [];
      } catch {
        return []; // It has ended in the meantime.
      }
    });
}

test.skipIf(!isContainable)(
  "an agent with the rights of its container starts workers as another user",
  async () => {
    await using pool = await Pool.start("--devices", "1");
    await using stack = new AsyncDisposableStack();
    // Like /run/millpond: every user may traverse it.
    chmodSync(pool.directory, 0o755);
    const { stdout: token } = await pool.millpond(["token", "create", "contained", "--role", "agent"]);
    const tokenFile = join(pool.directory, "contained.token");
    writeFileSync(tokenFile, token, { mode: 0o600 });
    const controller = pool.containerEnvironment({})["MILLPOND_CONTROLLER"] ?? "";
    const run = join(pool.directory, "contained");
    // A name like those of nodes in many clusters.
    const name = "ip-10-0-0-1.example.internal";
    const [command = "", ...args] = [
      ...inContainer,
      process.execPath,
      entry,
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
    expect(users.filter((user) => Number(user) <= 1_900_000_000)).toEqual([]);
    // It can end them, and destroy their data.
    agent.signal("SIGTERM");
    expect(await agent.finished).toMatchObject({ status: 0 });
    expect(readdirSync(join(run, "workers"))).toEqual([]);
  },
);
