// SPDX-License-Identifier: Apache-2.0
// The prolog, task prolog and epilog in a real Slurm of one node, with jobs of users that cannot read the pool's token.
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { type AddressInfo, createServer } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { entry } from "@millpond/cli/testing/entry";
import { inRoot } from "../scripts/lib/paths.ts";
import { examples, Pool, until } from "./support/pool.ts";
import { type Program, startProgram } from "./support/program.ts";

const hasSlurm =
  process.getuid?.() === 0 &&
  ["munged", "slurmctld", "slurmd", "srun"].every(
    (tool) => spawnSync("sh", ["-c", `command -v ${tool}`]).status === 0,
  );

const timeoutMs = 120_000;
/** A user without rights. */
const userId = "65534";

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

/** A cluster of one node whose jobs find a pool. */
class Cluster implements AsyncDisposable {
  readonly directory: string = mkdtempSync(join(tmpdir(), "millpond-slurm-"));
  readonly #servers: Program[] = [];

  get run(): string {
    return join(this.directory, "run");
  }

  get #environment(): NodeJS.ProcessEnv {
    return { PATH: process.env["PATH"], SLURM_CONF: join(this.directory, "slurm.conf") };
  }

  static async start(pool: Pool): Promise<Cluster> {
    const cluster = new Cluster();
    try {
      chmodSync(cluster.directory, 0o755);
      cluster.#writeScripts(pool.containerEnvironment({}));
      await cluster.#startServers();
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  #at(name: string): string {
    return join(this.directory, name);
  }

  #write(name: string, text: string | Buffer, mode = 0o644): string {
    writeFileSync(this.#at(name), text);
    chmodSync(this.#at(name), mode);
    return this.#at(name);
  }

  #writeScripts({ MILLPOND_CONTROLLER: controller, MILLPOND_TOKEN: token }: NodeJS.ProcessEnv): void {
    mkdirSync(this.#at("bin"), { mode: 0o755 });
    this.#write("bin/millpond", `#!/bin/sh\nexec ${process.execPath} ${entry} "$@"\n`, 0o755);
    const environment = this.#write(
      "slurm.env",
      `PATH=${this.#at("bin")}:/usr/bin:/bin\nHOME=${this.directory}\nMILLPOND_CONTROLLER=${controller}\nMILLPOND_TOKEN=${token}\n`,
      0o600,
    );
    const exports = `export SLURM_MILLPOND_ENV=${environment} SLURM_MILLPOND_RUN=${this.run}`;
    for (const script of ["prolog.sh", "task-prolog.sh", "epilog.sh"])
      this.#write(script, `#!/bin/sh\n${exports}\nexec ${inRoot("packaging", "slurm", script)}\n`, 0o755);
  }

  async #startServers(): Promise<void> {
    for (const folder of ["state", "spool"]) mkdirSync(this.#at(folder));
    const socket = this.#at("munge");
    const key = this.#write("munge.key", randomBytes(128), 0o600);
    this.#serve("munged", [
      "--foreground",
      "--force",
      `--key-file=${key}`,
      `--socket=${socket}`,
      `--pid-file=${this.#at("munge.pid")}`,
      `--log-file=${this.#at("munge.log")}`,
      `--seed-file=${this.#at("munge.seed")}`,
    ]);
    const lines = {
      ClusterName: "test",
      SlurmctldHost: "localhost(127.0.0.1)",
      SlurmctldPort: await freePort(),
      SlurmdPort: await freePort(),
      SlurmUser: "root",
      AuthType: "auth/munge",
      AuthInfo: `socket=${socket}`,
      StateSaveLocation: this.#at("state"),
      SlurmdSpoolDir: this.#at("spool"),
      SlurmctldPidFile: this.#at("slurmctld.pid"),
      SlurmdPidFile: this.#at("slurmd.pid"),
      ProctrackType: "proctrack/linuxproc",
      TaskPlugin: "task/none",
      SelectType: "select/cons_tres",
      MpiDefault: "none",
      ReturnToService: 2,
      GresTypes: "vgpu",
      PrologFlags: "Alloc",
      Prolog: this.#at("prolog.sh"),
      TaskProlog: this.#at("task-prolog.sh"),
      Epilog: this.#at("epilog.sh"),
    };
    this.#write(
      "slurm.conf",
      [
        ...Object.entries(lines).map(([name, value]) => `${name}=${value}`),
        "NodeName=cpu1 NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=1 Gres=vgpu:no_consume:64",
        "PartitionName=all Nodes=cpu1 Default=YES State=UP",
        "",
      ].join("\n"),
    );
    this.#write("gres.conf", "Name=vgpu Count=64 Flags=CountOnly\n");
    this.#write("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n");
    await until("munged", async () => existsSync(socket), Boolean, timeoutMs);
    this.#serve("slurmctld", ["-D"]);
    this.#serve("slurmd", ["-D", "-N", "cpu1"]);
    await until(
      "an idle node",
      () => this.nodeState(),
      (state) => state === "idle",
      timeoutMs,
    );
  }

  #serve(command: string, args: readonly string[]): void {
    this.#servers.push(startProgram(command, args, this.#environment));
  }

  /** Such as `idle`, `drained`; empty before the controller answers. */
  async nodeState(): Promise<string> {
    return spawnSync("sinfo", ["-h", "-o", "%T"], { env: this.#environment, encoding: "utf8" }).stdout.trim();
  }

  /** Runs a command of Slurm as a user. */
  start(command: string, args: readonly string[]): Program {
    const user = ["--reuid", userId, "--regid", userId, "--clear-groups", command];
    return startProgram("setpriv", [...user, ...args], this.#environment);
  }

  cancel(job: string): void {
    execFileSync("scancel", [job], { env: this.#environment });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers.toReversed()) {
      server.signal("SIGTERM");
      await server.finished;
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

test.skipIf(!hasSlurm)(
  "jobs of a user find their vGPUs, end with the reason where there are none, and give them back when they are cancelled",
  { timeout: 900_000 },
  async () => {
    const pool = await Pool.start("--devices", "2");
    onTestFinished(() => pool[Symbol.asyncDispose]());
    const cluster = await Cluster.start(pool);
    onTestFinished(() => cluster[Symbol.asyncDispose]());
    const idle = async (): Promise<void> => {
      await until(
        "an idle node",
        () => cluster.nodeState(),
        (state) => state === "idle",
        timeoutMs,
      );
      await pool.isClean();
      expect(readdirSync(cluster.run)).toEqual([]);
    };
    const small = ["--gres=vgpu:1", "--comment=memory=64Mi compute=25%"];

    const job = await cluster.start("srun", [...small, examples, "vectoradd"]).finished;
    expect(job, job.stderr).toMatchObject({
      status: 0,
      stdout: expect.stringContaining("vectoradd: OK") as string,
    });
    await idle();

    const impossible = await cluster.start("srun", ["--gres=vgpu:3", examples, "vectoradd"]).finished;
    expect(impossible).toMatchObject({
      status: 1,
      stdout: expect.stringMatching(/no node has 3 devices[^]*MILLPOND_E_IMPOSSIBLE/) as string,
    });
    // A prolog that fails would drain it.
    await idle();

    const program = `${examples} vectoradd 1000 --repeat 100000000`;
    const batch = await cluster.start("sbatch", [
      ...small,
      "--parsable",
      "--output=/dev/null",
      `--wrap=${program}`,
    ]).finished;
    const number = batch.stdout.trim();
    expect(number, batch.stderr).toMatch(/^\d+$/);
    await until(
      "a session of the job",
      () => pool.sessions(),
      (sessions) => sessions.some(({ claim, transport }) => claim === `slurm-${number}` && transport !== ""),
      timeoutMs,
    );
    cluster.cancel(number);
    await until(
      "no session",
      () => pool.sessions(),
      (sessions) => sessions.length === 0,
      timeoutMs,
    );
    await idle();
  },
);
