// SPDX-License-Identifier: Apache-2.0
// Controller and node on machines of their own, with addresses of their own and a cable that is pulled.
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { missingPostgres, PostgresServer } from "@millpond/controller/testing/postgres-server";
import { nativeDir } from "../scripts/lib/paths.ts";
import { Machine, missingMachines } from "./support/machine.ts";
import { examples, type NodeView, type SessionView, until } from "./support/pool.ts";
import type { Program, Result } from "./support/program.ts";

const why = missingMachines === undefined ? "" : ` (${missingMachines})`;
const withinMs = 120_000;

function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "millpond-network-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** A controller on one machine, an agent on another. */
async function startPool(...agentOptions: readonly string[]) {
  const directory = makeDirectory();
  const machines = await Machine.pair("10.77.0.1", "10.77.0.2");
  const [control, gpuHost] = machines;
  onTestFinished(async () => {
    await Promise.all(machines.map((machine) => machine[Symbol.asyncDispose]()));
  });
  const state = join(directory, "state");
  const base = { PATH: process.env["PATH"], HOME: directory };
  const startService = (machine: Machine, ...args: readonly string[]): Program => {
    const program = machine.start([process.execPath, entry, ...args], base, directory);
    onTestFinished(async () => {
      program.signal("SIGTERM");
      await program.finished;
    });
    return program;
  };

  const controller = startService(control, "controller", "--state", state, "--listen", "10.77.0.1:7170");
  await controller.says("stderr", /listens at https:\/\/10\.77\.0\.1:7170/, withinMs);
  const url = "https://10.77.0.1:7170";
  const ca = join(state, "tls", "ca.crt");
  const driver = join(nativeDir("release"), "softgpu", "libcuda.so.1");
  const worker = join(nativeDir("release"), "worker", "millpond-worker");
  const place = ["--driver", driver, "--worker", worker, "--run", join(directory, "run"), "--ca", ca];
  const of = ["--name", "far", "--controller", url, "--token-file", join(state, "agent.token")];
  startService(gpuHost, "agent", ...of, ...place, ...agentOptions);

  const token = readFileSync(join(state, "user.token"), "utf8").trim();
  const user = { ...base, MILLPOND_CONTROLLER: url, MILLPOND_TOKEN: token, MILLPOND_CA: ca };
  const millpond = (machine: Machine, ...args: readonly string[]): Program =>
    machine.start([process.execPath, entry, ...args], user, directory);
  const list = async <T>(kind: string): Promise<readonly T[]> => {
    const { stdout, stderr, status } = await millpond(control, "get", kind, "-o", "json").finished;
    if (status !== 0) throw new Error(stderr);
    return (JSON.parse(stdout) as { items: readonly T[] }).items;
  };
  const nodeIs = (wanted: string): Promise<unknown> =>
    until(
      `the node is ${wanted}`,
      () => list<NodeView>("nodes"),
      ([node]) => node?.state === wanted,
      withinMs,
    );
  await nodeIs("ready");
  return { control, gpuHost, directory, user, millpond, list, nodeIs };
}

test.skipIf(missingMachines !== undefined)(
  `a node behind a cable that is pulled goes on with what it has, and is one with the pool again${why}`,
  { timeout: 300_000 },
  async () => {
    const { gpuHost, millpond, list, nodeIs } = await startPool();
    const run = (...args: readonly string[]): Program =>
      millpond(gpuHost, "run", "-m", "64Mi", "--service-class", "burstable", "--", examples, ...args);

    expect(await run("vectoradd", "1000").finished).toMatchObject({ status: 0 });
    const lasting = run("memhold", "8");
    await until(
      "a session",
      () => list<SessionView>("sessions"),
      (sessions) => sessions.some(({ state: its }) => its === "connected"),
      withinMs,
    );

    await gpuHost.setCable("down");
    await nodeIs("notReady");
    await gpuHost.setCable("up");
    await nodeIs("ready");
    expect(await list("claims")).toHaveLength(1);
    expect((await list<SessionView>("sessions")).map(({ node }) => node)).toEqual(["far"]);
    expect(await run("vectoradd", "1000").finished).toMatchObject({ status: 0 });
    lasting.signal("SIGINT");
    expect(await lasting.finished).toMatchObject({ status: 130 });
    await until(
      "no claim",
      () => list("claims"),
      (claims) => claims.length === 0,
      withinMs,
    );
  },
);

test.skipIf(missingMachines !== undefined)(
  `a program uses a GPU of another machine, encrypted, with millpond and without it${why}`,
  { timeout: 300_000 },
  async () => {
    const { control, gpuHost, directory, user, millpond, list } = await startPool("--listen", "10.77.0.2:0");
    const [node] = await list<NodeView>("nodes");
    expect(node?.agentUrl).toMatch(/^https:\/\/10\.77\.0\.2:\d+#sha256=[0-9a-f]{64}$/);

    // A program needs only two libraries and three variables. The machines share files and boot id, so shared memory is
    // switched off.
    const alone = {
      ...user,
      LD_LIBRARY_PATH: join(nativeDir("release"), "client"),
      MILLPOND_TRANSPORT: "tcp",
      MILLPOND_MEMORY: "64Mi",
      MILLPOND_COMPUTE: "10",
    };
    const plain = (env: NodeJS.ProcessEnv): Program =>
      control.start([examples, "vectoradd", "100000"], env, directory);
    expect(await plain(alone).finished).toMatchObject({ status: 0, stderr: "" });
    const mistrusts = await plain({ ...alone, MILLPOND_CA: "/etc/ssl/certs/ca-certificates.crt" }).finished;
    expect(mistrusts.status).not.toBe(0);
    expect(mistrusts.stderr).toMatch(/is not trusted: .*\[MILLPOND_E_TLS\]/);

    const run = (...args: readonly string[]): Program =>
      millpond(
        control,
        "run",
        "-m",
        "64Mi",
        "--compute",
        "10",
        "--transport",
        "tcp",
        "--",
        examples,
        ...args,
      );
    const endless = run("vectoradd", "1000", "--repeat", "100000000");
    await until(
      "a session",
      () => list<SessionView>("sessions"),
      (sessions) => sessions.some(({ state: its }) => its === "connected"),
      withinMs,
    );
    // A briefly unplugged cable does not end anything.
    await gpuHost.setCable("down");
    await gpuHost.setCable("up");
    expect(await run("vectoradd", "100000").finished).toMatchObject({ status: 0, stderr: "" });
    endless.signal("SIGINT");
    expect(await endless.finished).toMatchObject({ status: 130 });
    expect((await millpond(control, "doctor").finished).stdout).toMatch(/node far: ready/);
  },
);

test.skipIf(missingMachines !== undefined)(
  `a pool that one command started at all addresses is used from another machine${why}`,
  { timeout: 300_000 },
  async () => {
    const directory = makeDirectory();
    const machines = await Machine.pair("10.77.0.1", "10.77.0.2");
    const [here, there] = machines;
    onTestFinished(async () => {
      await Promise.all(machines.map((machine) => machine[Symbol.asyncDispose]()));
    });
    const env = { PATH: process.env["PATH"], HOME: directory };
    const millpond = (machine: Machine, ...args: readonly string[]): Program =>
      machine.start([process.execPath, entry, ...args], env, directory);
    const up = millpond(here, "up", "--soft", "--devices", "1", "--listen", "0.0.0.0:0");
    onTestFinished(async () => {
      up.signal("SIGTERM");
      await up.finished;
    });
    await up.says("stdout", /controller +https:\/\/10\.77\.0\.1:/, withinMs);
    // With the context that it wrote, which contains the authority.
    const run = ["run", "-m", "64Mi", "--transport", "tcp", "--", examples, "vectoradd", "1000"];
    expect(await millpond(there, ...run).finished).toMatchObject({ status: 0, stderr: "" });
  },
);

test.skipIf(missingMachines !== undefined || missingPostgres !== undefined)(
  `another controller is the leader when the machine of the one that does is silent, and commands find it${why}`,
  { timeout: 300_000 },
  async () => {
    const directory = makeDirectory();
    await using server = await PostgresServer.start();
    const machines = await Machine.pair("10.77.0.1", "10.77.0.2");
    await using cleanup = new AsyncDisposableStack();
    for (const machine of machines) cleanup.use(machine);
    const [there, here] = machines;
    const agentToken = "agent-of-both-controllers";
    const base = { PATH: process.env["PATH"], HOME: directory };
    const shared = { MILLPOND_STORE: await server.makeDatabase(), MILLPOND_AGENT_TOKENS: agentToken };
    const start = (machine: Machine, args: readonly string[], env: NodeJS.ProcessEnv = {}): Program => {
      const program = machine.start([process.execPath, entry, ...args], { ...base, ...env }, directory);
      cleanup.defer(async () => {
        program.signal("SIGCONT");
        program.signal("SIGTERM");
        await program.finished;
      });
      return program;
    };
    const startController = async (machine: Machine, name: string, address: string): Promise<Program> => {
      const of = ["controller", "--state", join(directory, name), "--listen", `${address}:7170`];
      const program = start(machine, of, shared);
      await program.says("stderr", /listens at https:/, withinMs);
      return program;
    };
    const first = await startController(there, "first", "10.77.0.1");
    mkdirSync(join(directory, "second", "tls"), { recursive: true, mode: 0o700 });
    for (const file of ["ca.crt", "ca.key"]) {
      copyFileSync(join(directory, "first", "tls", file), join(directory, "second", "tls", file));
    }
    copyFileSync(join(directory, "first", "pool.key"), join(directory, "second", "pool.key"));
    await startController(here, "second", "10.77.0.2");

    const url = "https://10.77.0.1:7170,https://10.77.0.2:7170";
    const ca = join(directory, "first", "tls", "ca.crt");
    const admin = readFileSync(join(directory, "first", "user.token"), "utf8").trim();
    const at = { ...base, MILLPOND_CONTROLLER: url, MILLPOND_CA: ca };
    const millpond = (token: string, ...args: readonly string[]): Promise<Result> =>
      here.start([process.execPath, entry, ...args], { ...at, MILLPOND_TOKEN: token }, directory).finished;
    // Each controller has its own tokens in files.
    const made = await millpond(admin, "token", "create", "ann", "--role", "admin", "-o", "json");
    const { secret } = JSON.parse(made.stdout) as { readonly secret: string };
    const tokenFile = join(directory, "agent.token");
    writeFileSync(tokenFile, agentToken, { mode: 0o600 });
    const driver = join(nativeDir("release"), "softgpu", "libcuda.so.1");
    const worker = join(nativeDir("release"), "worker", "millpond-worker");
    const place = ["--driver", driver, "--worker", worker, "--run", join(directory, "run"), "--drain", "all"];
    start(here, [
      "agent",
      "--name",
      "a",
      "--controller",
      url,
      "--ca",
      ca,
      "--token-file",
      tokenFile,
      ...place,
    ]);
    const run = () => millpond(secret, "run", "-m", "64Mi", "--", examples, "vectoradd", "1000");
    expect(await run()).toMatchObject({ status: 0 });

    // As after a power failure: there is no response, not even a refused connection.
    first.signal("SIGSTOP");
    await there.setCable("down");
    expect(await run()).toMatchObject({ status: 0 });
    const { stdout } = await millpond(secret, "get", "nodes", "-o", "json");
    expect((JSON.parse(stdout) as { items: readonly NodeView[] }).items[0]?.state).toBe("ready");

    await there.setCable("up");
    first.signal("SIGCONT");
    await first.says(
      "stderr",
      /another controller is the leader|another controller has begun to lead/,
      withinMs,
    );
    expect(await run()).toMatchObject({ status: 0 });
  },
);
