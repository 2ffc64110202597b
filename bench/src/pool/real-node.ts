// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { nodeLostAfterMs } from "@millpond/controller";
import type { Host, HostSite } from "@millpond/controller/testing/crash-rounds";
import { processesWith } from "../../../scripts/lib/background.ts";
import { inRoot, nativeDir } from "../../../scripts/lib/paths.ts";
import { Program, type Result } from "@millpond/test/support/program";

const native = nativeDir("release");
const examples = inRoot("examples", "prebuilt", "millpond-examples");
const millpond = inRoot("cli", "bin", "millpond.mjs");

/** Each takes some seconds, during which the leader, the database and the agent may be lost. */
const programs = [
  ["vectoradd", "1000", "--repeat", "3000"],
  ["reduction", "200000"],
  ["streams", "200000"],
] as const;
/** A program that ends immediately. */
const short = ["vectoradd", "1000"] as const;
/** Concurrent programs: one for each device of the node. */
const lanes = 2;
const deviceMemory = "512Mi";
const nodeName = "node-real";
/** The output of a program that has lost its worker. */
const told = /the GPU of this process is gone|\[MILLPOND_E_[A-Z_]+\]\s*$/m;
const pauseMs = 300;
/** Longer than the controllers take to declare a silent node lost. */
const silenceMs = nodeLostAfterMs + 2000;
/** Longer than the lease of a claim that could not be released. */
const quietMs = 120_000;

/** Programs on software GPUs, on a node whose agent and workers are real processes. */
export class RealNode implements Host {
  readonly pool = "programs";
  /** Programs that have ended as expected. */
  done = 0;
  readonly #site: HostSite;
  readonly #directory: string;
  readonly #stop = new AbortController();
  readonly #broken: string[] = [];
  /** Claims whose worker was killed. */
  readonly #hurt = new Set<string>();
  #runs = 0;
  #lanes: readonly Promise<void>[] = [];
  #agent: Program;

  private constructor(site: HostSite, directory: string) {
    this.#site = site;
    this.#directory = directory;
    this.#agent = this.#beginAgent();
  }

  static async start(site: HostSite): Promise<RealNode> {
    const directory = await mkdtemp(join(tmpdir(), "node-"));
    await writeFile(join(directory, "agent.token"), site.agentToken, { mode: 0o600 });
    const node = new RealNode(site, directory);
    await node.#untilReady();
    node.#lanes = Array.from({ length: lanes }, (_, lane) => node.#drive(lane));
    return node;
  }

  /** Kills the agent. Resolves after its replacement has served a program. */
  async replaceAgent(): Promise<void> {
    this.#agent.signal("SIGKILL");
    await this.#agent.finished;
    this.#agent = this.#beginAgent();
    await this.#run(short, "shm");
  }

  async pauseAgent(): Promise<void> {
    this.#agent.signal("SIGSTOP");
    await sleep(silenceMs);
    this.#agent.signal("SIGCONT");
    await this.#run(short, "tcp");
  }

  async killWorker(): Promise<void> {
    for (;;) {
      for (const { pid, claim } of await this.#serving()) {
        if (!this.#hurt.has(claim) && kill(pid)) {
          this.#hurt.add(claim);
          return;
        }
      }
      await sleep(pauseMs);
    }
  }

  takeStock(): readonly string[] {
    return this.#broken.splice(0);
  }

  /** Ends the programs; resolves with leftovers that should be gone. */
  async finish(): Promise<readonly string[]> {
    this.#stop.abort();
    await Promise.all(this.#lanes);
    const deadline = Date.now() + quietMs;
    let left: readonly string[] = [];
    do {
      left = await this.#sessions();
      if (left.length === 0) break;
      await sleep(pauseMs);
    } while (Date.now() < deadline);
    this.#agent.signal("SIGTERM");
    const { status, stderr } = await this.#agent.finished;
    const processes = await processesWith(`${this.#directory}/`);
    return [
      ...this.takeStock(),
      ...left.map((session) => `session ${session} is left`),
      ...processes.map(({ command }) => `${command} is left`),
      ...(status === 0 ? [] : [`the agent ended with status ${status}: ${stderr}`]),
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#agent.signal("SIGKILL");
    await this.#agent.finished;
    await rm(this.#directory, { recursive: true, force: true });
  }

  #millpond(args: readonly string[], variables: NodeJS.ProcessEnv): Program {
    const { PATH, TMPDIR } = process.env;
    const env = { PATH, TMPDIR, HOME: this.#directory, ...variables };
    return new Program(
      spawn(process.execPath, [millpond, ...args], { env, stdio: ["ignore", "pipe", "pipe"] }),
    );
  }

  #client(args: readonly string[]): Program {
    const { urls, userToken } = this.#site;
    return this.#millpond(args, { MILLPOND_CONTROLLER: urls, MILLPOND_TOKEN: userToken });
  }

  #beginAgent(): Program {
    const { urls } = this.#site;
    const files = [
      "--token-file",
      join(this.#directory, "agent.token"),
      "--run",
      join(this.#directory, "run"),
    ];
    const driver = join(native, "softgpu", "libcuda.so.1");
    const worker = join(native, "worker", "millpond-worker");
    const of = [
      "--name",
      "node-real",
      "--controller",
      urls,
      "--labels",
      `pool=${this.pool}`,
      "--drain",
      "all",
    ];
    return this.#millpond(["agent", ...of, ...files, "--driver", driver, "--worker", worker], {
      MILLPOND_SOFTGPU_DEVICES: String(lanes),
      MILLPOND_SOFTGPU_MEMORY: deviceMemory,
      MILLPOND_SOFTGPU_SEED: this.#directory,
      MILLPOND_SOFTGPU_STATE: join(this.#directory, "softgpu"),
    });
  }

  async #drive(lane: number): Promise<void> {
    for (let turn = lane; !this.#stop.signal.aborted; turn += 1) {
      await this.#run(programs[turn % programs.length] ?? short, turn % 2 === 0 ? "shm" : "tcp");
      await sleep(pauseMs);
    }
  }

  /** Runs a program, which notices no fault except the loss of its worker. */
  async #run(what: readonly string[], transport: "shm" | "tcp"): Promise<void> {
    this.#runs += 1;
    const name = `program-${this.#runs}`;
    const asked = [
      "--name",
      name,
      "-m",
      "64Mi",
      "--service-class",
      "burstable",
      "--pool",
      this.pool,
      "--transport",
      transport,
    ];
    const { status, stdout, stderr } = await this.#client(["run", ...asked, "--", examples, ...what])
      .finished;
    if (status === 0 && stdout.includes(": OK")) this.done += 1;
    else if (!this.#hurt.has(name) || status === 0 || !told.test(stderr))
      this.#broken.push(`${what.join(" ")}, ${transport}, ended with status ${status}: ${stdout}${stderr}`);
  }

  async #untilReady(): Promise<void> {
    const ended: Result[] = [];
    void this.#agent.finished.then((result) => ended.push(result));
    for (;;) {
      for (const { stderr } of ended) throw new Error(`the agent did not start: ${stderr}`);
      const nodes = await this.#list<{ name: string; state: string }>("nodes");
      if (nodes.some(({ name, state }) => name === nodeName && state === "ready")) return;
      await sleep(pauseMs);
    }
  }

  /** The workers that serve a program, as recorded by the agent. */
  async #serving(): Promise<readonly { readonly pid: number; readonly claim: string }[]> {
    const workers = join(this.#directory, "run", "workers");
    const serving: { pid: number; claim: string }[] = [];
    for (const id of await readdir(workers)) {
      const note = await readNote(join(workers, id, "worker.json"));
      if (note?.session && note.client) serving.push({ pid: note.process.pid, claim: note.session.claim });
    }
    return serving;
  }

  async #sessions(): Promise<readonly string[]> {
    const sessions = await this.#list<{ id: string; node: string }>("sessions");
    return sessions.filter(({ node }) => node === nodeName).map(({ id }) => id);
  }

  async #list<T>(kind: string): Promise<readonly T[]> {
    const { status, stdout, stderr } = await this.#client(["get", kind, "-o", "json"]).finished;
    if (status !== 0) throw new Error(`get ${kind}: ${stderr}`);
    return (JSON.parse(stdout) as { items: readonly T[] }).items;
  }
}

interface WorkerNote {
  readonly process: { readonly pid: number };
  readonly session: { readonly claim: string } | null;
  readonly client: object | null;
}

/** @returns whether the process existed */
function kill(pid: number): boolean {
  try {
    return process.kill(pid, "SIGKILL");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ESRCH") return false;
    throw error;
  }
}

/** Undefined when the worker is gone. */
async function readNote(path: string): Promise<WorkerNote | undefined> {
  try {
    return JSON.parse(await readFile(path, "utf8")) as WorkerNote;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}
