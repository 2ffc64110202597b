// SPDX-License-Identifier: Apache-2.0
// The view of another user of the host on a pool that was started with an open umask: files, sockets, environments, command lines
// and memory maps.
import { spawn } from "node:child_process";
import { lstatSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { agentArguments } from "./support/agent.ts";
import { clientDirectory, examples, Pool, until } from "./support/pool.ts";
import { Program } from "./support/program.ts";

/** Files of a pool that everybody may open: a data socket accepts only the holder of its session's ticket. */
const forEverybody = /\/data\.sock$/;

interface Found {
  readonly path: string;
  readonly mode: number;
  readonly kind: "file" | "folder" | "socket";
}

/** The answer; undefined if the file has disappeared meanwhile, like the folder of a worker that ends. */
function present<T>(ask: () => T): T | undefined {
  try {
    return ask();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

function* find(folder: string): Generator<Found> {
  for (const name of present(() => readdirSync(folder)) ?? []) {
    const path = join(folder, name);
    const info = present(() => lstatSync(path));
    if (info === undefined) continue;
    const mode = info.mode & 0o7777;
    if (info.isDirectory()) {
      yield { path, mode, kind: "folder" };
      yield* find(path);
    } else if (info.isFile()) yield { path, mode, kind: "file" };
    else if (info.isSocket()) yield { path, mode, kind: "socket" };
  }
}

/** Text of a file in /proc; undefined if the kernel does not let even this user read it, or if the process has ended. */
function ofProcess(pid: number, name: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EACCES" || code === "EPERM" || code === "ENOENT" || code === "ESRCH") return undefined;
    throw error;
  }
}

test("a pool that is started with an open umask leaves nothing for other users of the host", async () => {
  const before = process.umask(0);
  await using pool = await Pool.start("--nodes", "1", "--devices", "1").finally(() => process.umask(before));
  const program = pool.startHolder(["-m", "256Mi"]);
  await using stack = new AsyncDisposableStack();
  stack.defer(async () => {
    program.signal("SIGTERM");
    await program.finished;
  });
  await pool.connected(1);

  const found = [...find(pool.directory)];
  expect(found.filter(({ path }) => path.endsWith(".sock")).length).toBeGreaterThan(1);
  const writable = found.filter(
    ({ path, mode, kind }) => (mode & 0o022) !== 0 && !(kind === "socket" && forEverybody.test(path)),
  );
  expect(writable.map(({ path, mode }) => `${mode.toString(8)} ${path}`)).toEqual([]);
  // Nothing that is stored is readable for others: tokens, keys, databases, records, logs.
  const readable = found.filter(({ mode, kind }) => kind === "file" && (mode & 0o077) !== 0);
  expect(readable.map(({ path, mode }) => `${mode.toString(8)} ${path}`)).toEqual([]);

  const secrets = found
    .filter(({ path, kind }) => kind === "file" && /(token|\.key|config\.json)$/.test(path))
    .flatMap(({ path }) => readFileSync(path, "utf8").match(/mp-[a-z]+-[A-Za-z0-9_-]{20,}/g) ?? []);
  expect(secrets.length).toBeGreaterThan(0);
  const servants = await until(
    "the pool's processes",
    async () => await pool.processes(/millpond-worker|millpond\.mjs (up|agent|controller)/),
    (pids) => pids.length >= 2,
  );
  const all = await pool.processes(/./);
  const told = [
    ...all.map((pid) => ofProcess(pid, "cmdline")),
    ...servants.map((pid) => ofProcess(pid, "environ")),
  ];
  for (const secret of secrets) expect(told.filter((text) => text?.includes(secret))).toEqual([]);

  const workers = await pool.servingWorkers();
  expect(workers.length).toBe(1);
  for (const pid of workers) {
    const maps = ofProcess(pid, "maps") ?? "";
    if (process.getuid?.() === 0) expect(maps).toContain("millpond-worker");
    expect(maps.split("\n").filter((line) => /^\S+ rwx/.test(line))).toEqual([]);
  }
});

const asRoot = process.getuid?.() === 0 ? test : test.skip;

asRoot("a user who took the port of a service that is away hears no token from anyone", async () => {
  await using pool = new Pool();
  const listener = `
    const server = require("node:net").createServer((socket) => {
      socket.on("data", (bytes) => process.stdout.write("heard " + bytes));
      socket.on("error", () => undefined);
    });
    server.listen(0, "127.0.0.1", () => console.log("port " + server.address().port));`;
  const squatter = new Program(
    spawn(process.execPath, ["-e", listener], { uid: 4321, gid: 4321, cwd: "/", stdio: "pipe" }),
  );
  await using stack = new AsyncDisposableStack();
  stack.defer(async () => {
    squatter.signal("SIGKILL");
    await squatter.finished;
  });
  await squatter.says("stdout", /^port \d+\n/);
  const controller = `http://127.0.0.1:${/\d+/.exec(squatter.stdout)?.[0] ?? ""}`;
  const token = `mp-user-${"s".repeat(40)}`;
  const environment = { MILLPOND_CONTROLLER: controller, MILLPOND_TOKEN: token };
  const refusal = /port \d+ of this machine is served by user 4321/;

  for (const args of [["get", "nodes"], ["run", "--", "true"], ["env"]]) {
    const { status, stderr } = await pool.start(args, environment).finished;
    expect(status, args.join(" ")).not.toBe(0);
    expect(stderr).toMatch(refusal);
    expect(stderr).toContain("MILLPOND_TRUSTED_USERS");
  }
  const program = spawn(examples, ["vectoradd", "1000"], {
    env: { ...environment, LD_LIBRARY_PATH: clientDirectory },
    stdio: "pipe",
  });
  const { status, stderr } = await new Program(program).finished;
  expect(status).not.toBe(0);
  expect(stderr).toMatch(refusal);

  const tokenFile = join(pool.directory, "token");
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const run = join(pool.directory, "run");
  const agent = pool.start(agentArguments({ name: "n", controller, tokenFile, run }));
  stack.defer(async () => {
    agent.signal("SIGTERM");
    await agent.finished;
  });
  await until(
    "the agent's complaint",
    () => Promise.resolve(agent.stdout + agent.stderr),
    (said) => refusal.test(said),
  );
  await sleep(200);
  expect(squatter.stdout).toMatch(/^port \d+\n$/);

  // A caller that trusts this user may call it.
  const trusting = pool.start(["get", "nodes"], { ...environment, MILLPOND_TRUSTED_USERS: "4321" });
  stack.defer(async () => {
    trusting.signal("SIGKILL");
    await trusting.finished;
  });
  await squatter.says("stdout", /heard POST .*\r\n/);
});
