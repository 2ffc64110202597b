// SPDX-License-Identifier: Apache-2.0

import { symlinkSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { probeDriver } from "@millpond/agent";
import { findNativeFiles } from "@millpond/cli";
import { BenchPool } from "@millpond/bench";
import type { Program } from "./catalogue.ts";
import type { Run } from "./compare.ts";
import type { Finding } from "./report.ts";
import { runProgram } from "./run-program.ts";
import { readRecorded, writeRecorded } from "./recorded.ts";
import { judge, type Refusal, type Runs, type Transport, type Way } from "./verdict.ts";

export interface SessionOptions {
  /** The repository's root, or the unpacked archive's. */
  readonly root: string;
  /** Path of a driver library; undefined: the software GPU. */
  readonly driver: string | undefined;
  /** Whether TCP connections are encrypted, as between hosts. */
  readonly isEncrypted: boolean;
  /** The number of devices that each program sees. */
  readonly gpus: number;
  /** The number of programs that run concurrently. */
  readonly jobs: number;
  readonly transports: readonly Transport[];
  readonly timeoutMs: number;
  /** Library that every program preloads; undefined: none. */
  readonly preload: string | undefined;
  /** Programs that fail on the software GPU for a lasting reason. */
  readonly softRefusals: Readonly<Record<string, Refusal>>;
  /** Whether native output on a real GPU is recorded as the reference for the software GPU. */
  readonly isRecording: boolean;
}

/**
 * Memory of each vGPU. A GPU allocates a stack for each thread that can be resident: a program with stacks of 16 KiB takes
 * 4.3 GiB of an H200, which is charged to its claim.
 */
const cardMemory = "8Gi";
/** Software GPUs allocate nothing besides the programs' memory, and every program needs far less. */
const softVgpuMemory = "1Gi";
const softMemory = "16Gi";
/** It allocates all memory of the device, which leaves none for a concurrent program. */
const alone: ReadonlySet<string> = new Set(["out-of-memory"]);
/**
 * Sanitizers map all processes at the same addresses, and kernels can access a program's memory at its own address only if
 * the worker has nothing mapped there. With a larger stack limit, workers are mapped lower.
 */
const ownLayout = ["prlimit", "--stack=4294967296:"];
/** Programs whose processes share memory, which requires one claim. */
const sharing: ReadonlySet<string> = new Set(["sharing", "sharing-files", "sharing-pools"]);
/** A program may have a child with a session of its own, and earlier sessions may still be ending. */
const sessionsOfProgram = 4;

/** A driver and a pool of its devices, on which programs are run. */
export class Session implements AsyncDisposable {
  readonly hardware: string;
  readonly driver: string;
  /** Directory of the driver's library under the name that programs look for. */
  readonly driverDirectory: string;
  readonly #options: SessionOptions;
  readonly #client: string;
  readonly #isSoft: boolean;
  readonly #directory: string;
  #pool: BenchPool | undefined;

  private constructor(
    options: SessionOptions,
    about: { hardware: string; driver: string; client: string; isSoft: boolean; directory: string },
  ) {
    this.#options = options;
    this.hardware = about.hardware;
    this.driver = about.driver;
    this.driverDirectory = about.directory;
    this.#client = about.client;
    this.#isSoft = about.isSoft;
    this.#directory = about.directory;
  }

  /** Queries the devices of the driver, and starts a pool of them when transports are requested. */
  static async start(options: SessionOptions): Promise<Session> {
    const { worker, client, softgpu } = findNativeFiles(process.env);
    const driver = resolve(options.driver ?? softgpu);
    const probe = await probeDriver({ worker, driver, timeoutMs: 120_000 });
    const [device] = probe.devices;
    if (device === undefined) throw new Error(`${driver} has no device`);
    const isSoft = device.kind === "softgpu";
    if (!isSoft && options.gpus > probe.devices.length)
      throw new Error(`${driver} has ${probe.devices.length} devices, fewer than ${options.gpus}`);
    const directory = await mkdtemp(join(tmpdir(), "millpond-conformance-"));
    symlinkSync(driver, join(directory, "libcuda.so.1"));
    const session = new Session(options, { hardware: device.name, driver, client, isSoft, directory });
    try {
      await session.#startPool();
      return session;
    } catch (error) {
      await session[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #startPool(): Promise<void> {
    const { root, gpus, jobs, transports, preload, isEncrypted } = this.#options;
    if (transports.length === 0) return;
    const upOptions = ["--warm", String(jobs)];
    if (isEncrypted) upOptions.push("--encrypt");
    if (this.#isSoft) upOptions.push("--devices", String(gpus), "--device-memory", softMemory);
    const wrapper = preload === undefined ? [] : ownLayout;
    this.#pool = await BenchPool.start({ root, isSoft: this.#isSoft, upOptions, wrapper });
  }

  get #nativeEnvironment(): Record<string, string> {
    const { gpus } = this.#options;
    if (!this.#isSoft) {
      return {
        LD_LIBRARY_PATH: `${this.#directory}:${dirname(this.driver)}`,
        CUDA_VISIBLE_DEVICES: Array.from({ length: gpus }, (_, index) => index).join(","),
      };
    }
    return {
      LD_LIBRARY_PATH: this.#directory,
      MILLPOND_SOFTGPU_DEVICES: String(gpus),
      MILLPOND_SOFTGPU_STATE: join(this.#directory, "softgpu"),
    };
  }

  #environment(pool: BenchPool, transport: Transport): Record<string, string> {
    const { gpus, jobs } = this.#options;
    return {
      ...pool.environment(transport),
      LD_LIBRARY_PATH: dirname(this.#client),
      // For `millpond run`, which finds the client library itself.
      MILLPOND_NATIVE_DIR: dirname(dirname(this.#client)),
      MILLPOND_GPUS: String(gpus),
      MILLPOND_MEMORY: this.#isSoft ? softVgpuMemory : cardMemory,
      MILLPOND_COMPUTE: String(Math.max(1, Math.floor(100 / (jobs * sessionsOfProgram)))),
      MILLPOND_WAIT_TIMEOUT: "60",
    };
  }

  /** The CUDA runtime needs hidden tables of the driver, which the software GPU leaves to the client library. */
  #runsNatively(program: Program): boolean {
    return !this.#isSoft || program.form === "driver";
  }

  /** Runs a program on the driver itself and through Millpond, and judges the results. */
  async find(program: Program): Promise<Finding> {
    const { root, timeoutMs, preload, transports, softRefusals, isRecording } = this.#options;
    const runs: Partial<Record<Way, Run>> = {};
    const run = async (way: Way, variables: Record<string, string>): Promise<void> => {
      const loaded = preload === undefined ? [] : [`LD_PRELOAD=${preload}`];
      const command = ["env", ...loaded, program.binary, program.program];
      const [binary = "", ...args] =
        way !== "native" && sharing.has(program.program)
          ? [process.execPath, join(root, "cli", "bin", "millpond.mjs"), "run", "--", ...command]
          : command;
      runs[way] = await runProgram(binary, args, variables, timeoutMs);
    };
    if (this.#runsNatively(program)) await run("native", this.#nativeEnvironment);
    const refusal = this.#isSoft ? softRefusals[program.name] : undefined;
    // A program that fails on the driver itself shows nothing about Millpond.
    const isUseful = refusal?.of === "native" || (runs.native?.status ?? 0) === 0;
    for (const transport of isUseful ? transports : []) {
      if (this.#pool !== undefined) await run(transport, this.#environment(this.#pool, transport));
    }
    const found: Runs = runs;
    // The recorded output of a real GPU is the reference for the software GPU.
    const recorded = this.#isSoft ? await readRecorded(root, program.name) : undefined;
    if (isRecording && !this.#isSoft && found.native?.status === 0)
      await writeRecorded(root, program.name, found.native.stdout);
    return { name: program.name, runs: found, ...judge(found, recorded, refusal) };
  }

  /** Runs all programs, several at a time if that is allowed; `onFinding` is called for each as it finishes. */
  async findAll(
    programs: readonly Program[],
    onFinding: (finding: Finding) => void,
  ): Promise<readonly Finding[]> {
    const found = new Map<Program, Finding>();
    const lane = async (queue: Program[]): Promise<void> => {
      for (let program = queue.shift(); program; program = queue.shift()) {
        const finding = await this.find(program);
        found.set(program, finding);
        onFinding(finding);
      }
    };
    const together = programs.filter(({ program }) => !alone.has(program));
    await Promise.all(Array.from({ length: this.#options.jobs }, () => lane(together)));
    await lane(programs.filter(({ program }) => alone.has(program)));
    return programs.flatMap((program) => found.get(program) ?? []);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool?.[Symbol.asyncDispose]();
    await rm(this.#directory, { recursive: true, force: true });
  }
}
