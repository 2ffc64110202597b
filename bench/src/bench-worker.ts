// SPDX-License-Identifier: Apache-2.0

import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServiceClassWord } from "@millpond/api";
import { connectWorker, spawnWorker, type WorkerControl, type WorkerMessage } from "@millpond/agent";
import { pinProcess } from "./cpu-sets.ts";
import type { Carrier } from "./results/metrics.ts";

/** Upper bound on the time from a worker's start until it is warm: real drivers take seconds to create a context. */
const warmTimeoutMs = 120_000;
const endTimeoutMs = 10_000;
const ticket = "bench";

/** A share of the compute of a device. */
interface Share {
  readonly serviceClass: ServiceClassWord;
  /** 1 to 100; 0: best effort. */
  readonly percent: number;
}

/**
 * Shared by all workers of this user: a worker's driver reuses the code that a native program has compiled.
 */
async function makeJitCache(): Promise<string> {
  const path = join(tmpdir(), `millpond-bench-jit-${userInfo().uid}`);
  await mkdir(path, { recursive: true, mode: 0o700 });
  return path;
}

/** A warm worker with an assigned session, as an agent prepares it for a client. */
export class BenchWorker implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #directory: string;
  readonly #control: WorkerControl;
  readonly #tcpPort: number;
  readonly #linkSecret: string;
  readonly #hasExited: Promise<unknown>;

  private constructor(
    child: ChildProcess,
    directory: string,
    control: WorkerControl,
    tcpPort: number,
    linkSecret: string,
    hasExited: Promise<unknown>,
  ) {
    this.#child = child;
    this.#directory = directory;
    this.#control = control;
    this.#tcpPort = tcpPort;
    this.#linkSecret = linkSecret;
    this.#hasExited = hasExited;
  }

  /** Starts a worker on a driver library and waits until it is warm and assigned. */
  static async start(options: {
    readonly worker: string;
    readonly driver: string;
    readonly uuid: string;
    readonly memoryBytes: number;
    /** Default: the whole device. */
    readonly share?: Share;
    /** File of the gate, if the worker shares a device with other workers. Default: none. */
    readonly gatesPath?: string | undefined;
    /** Default: shared memory and plain TCP. */
    readonly carrier?: Carrier;
    /** Processors in the form of taskset(1). Default: all. */
    readonly cpus?: string;
  }): Promise<BenchWorker> {
    const linkSecret = options.carrier === "tls" ? randomBytes(32).toString("hex") : "";
    const directory = await mkdtemp(join(tmpdir(), "millpond-bench-"));
    const child = spawnWorker({
      worker: options.worker,
      driver: options.driver,
      id: "bench",
      controlPath: join(directory, "control.sock"),
      controlKey: "",
      dataPath: join(directory, "data.sock"),
      peersPath: join(directory, "peers.sock"),
      logPath: join(directory, "worker.log"),
      tcpPorts: undefined,
      tcpHost: "127.0.0.1",
      warmDevice: options.uuid,
      orphanSeconds: 60,
      reconnectGraceSeconds: 60,
      imageCachePath: directory,
      gatesPath: options.gatesPath ?? "",
      gateDevices: [options.uuid],
      claimsPath: "",
      jitCachePath: await makeJitCache(),
    });
    child.ref(); // an agent leaves its workers running; here their end is awaited
    const hasExited = once(child, "exit");
    const died = hasExited.then(async () => {
      const log = await readFile(join(directory, "worker.log"), "utf8");
      throw new Error(`the worker ended (status ${child.exitCode}):\n${log.trim()}`);
    });
    died.catch(() => undefined); // the caller that awaits it sees the failure; one that comes later does not matter
    try {
      const { control, tcpPort } = await Promise.race([meet(directory, { ...options, linkSecret }), died]);
      await pinProcess(child.pid ?? 0, options.cpus ?? "");
      return new BenchWorker(child, directory, control, tcpPort, linkSecret, hasExited);
    } catch (error) {
      child.kill("SIGKILL");
      await hasExited;
      await rm(directory, { recursive: true, force: true });
      throw error;
    }
  }

  get tcpPort(): number {
    return this.#tcpPort;
  }

  /** The environment of a client that attaches to this worker, through a relay's port if there is one. */
  environment(carrier: Carrier, port = this.#tcpPort): Record<string, string> {
    const isNear = carrier === "shm";
    return {
      MILLPOND_WORKER: isNear ? `unix:${join(this.#directory, "data.sock")}` : `tcp:127.0.0.1:${port}`,
      MILLPOND_TICKET: ticket,
      MILLPOND_TRANSPORT: isNear ? "shm" : "tcp",
      MILLPOND_LINK_SECRET: this.#linkSecret,
    };
  }

  /** The arguments with which transport-bench attaches to this worker. */
  transportArguments(carrier: Carrier, port = this.#tcpPort): string[] {
    return carrier === "shm"
      ? ["unix", join(this.#directory, "data.sock"), ticket]
      : ["tcp", "127.0.0.1", String(port), ticket];
  }

  /** Memory of the worker's process in MiB: its proportional share (PSS), and resident (RSS). */
  async memory(): Promise<{ share: number; resident: number }> {
    const text = await readFile(`/proc/${this.#child.pid}/smaps_rollup`, "utf8");
    const field = (name: string): number => {
      const kib = new RegExp(`^${name}: +(\\d+) kB$`, "m").exec(text)?.[1];
      if (kib === undefined) throw new Error(`smaps_rollup has no ${name}`);
      return Number(kib) / 1024;
    };
    return { share: field("Pss"), resident: field("Rss") };
  }

  /** Waits for the worker's exit, which follows the end of its session; stops a worker that had none. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#control.send({ type: "close", reason: "the measurement is over" });
    const hasEnded = await Promise.race([
      this.#hasExited.then(() => true),
      sleep(endTimeoutMs, false, { ref: false }),
    ]);
    this.#control.disconnect();
    if (!hasEnded) {
      this.#child.kill("SIGKILL");
      await this.#hasExited;
    }
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** Waits until the worker listens, and assigns it a session. */
async function meet(
  directory: string,
  options: {
    readonly uuid: string;
    readonly memoryBytes: number;
    readonly share?: Share;
    readonly linkSecret: string;
  },
): Promise<{ control: WorkerControl; tcpPort: number }> {
  const path = join(directory, "control.sock");
  const assigned = Promise.withResolvers<number>();
  let tcpPort = 0;
  const onMessage = (message: WorkerMessage): void => {
    if (message.type === "hello") tcpPort = message.tcpPort;
    else if (message.type === "assigned") assigned.resolve(tcpPort);
    else if (message.type === "refused") assigned.reject(new Error(message.message));
  };
  const onClose = (error?: Error): void => assigned.reject(error ?? new Error("the worker hung up"));
  assigned.promise.catch(() => undefined); // awaited below, once there is a connection
  const deadline = Date.now() + warmTimeoutMs;
  for (;;) {
    try {
      const control = await connectWorker(path, "", { onMessage, onClose });
      control.send({
        type: "assign",
        session: "bench",
        ticket,
        expires: Math.floor(Date.now() / 1000) + 3600,
        linkSecret: options.linkSecret,
        parkAfterMs: 0,
        overheadBytes: [0],
        printsBytes: [0],
        allocatesBytes: [0],
        claimHostBytes: 0,
        claimDirectory: "",
        tenant: "",
        sizeRevision: 0,
        priority: 0,
        devices: [
          {
            uuid: options.uuid,
            memoryBytes: options.memoryBytes,
            computePercent: options.share?.percent ?? 100,
            serviceClass: options.share?.serviceClass ?? "guaranteed",
          },
        ],
        group: "",
      });
      return { control, tcpPort: await assigned.promise };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // The socket appears when the worker is warm.
      if ((code !== "ENOENT" && code !== "ECONNREFUSED") || Date.now() > deadline) throw error;
      await sleep(5);
    }
  }
}
