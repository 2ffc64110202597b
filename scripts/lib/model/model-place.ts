// SPDX-License-Identifier: Apache-2.0
// The environments of the model test: software GPUs and, through Millpond, a worker of this build.
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Background } from "../background.ts";
import { must, ScriptError } from "../command.ts";
import { CuttingRelay } from "./cutting-relay.ts";
import { nativeDir, root, toolEnvironment } from "../paths.ts";

export interface Way {
  readonly transport: "direct" | "shm" | "tcp" | "tls" | "native";
  /** Half of each device, so that the worker's gate is active. */
  readonly isGated: boolean;
  /** The link goes through a relay that cuts it at random bytes. */
  readonly hasCuts: boolean;
}

const softGpu = (): string => join(nativeDir("release"), "softgpu", "libcuda.so.1");
const workerProgram = (): string => join(nativeDir("release"), "worker", "millpond-worker");
const memoryOfSession = 512 * 1024 * 1024;
/** Time limit of a worker's start, in milliseconds: the machine may be busy. */
const startMs = 60_000;

export class ModelPlace implements AsyncDisposable {
  readonly environment: NodeJS.ProcessEnv;
  readonly #worker: Background | undefined;
  readonly #relay: CuttingRelay | undefined;
  readonly #lines: readonly string[];

  /**
   * @param chaos seed of random scheduling on software GPUs; default: none
   * @param driver the driver library of the workers; default: the software GPU's
   */
  static async open(
    way: Way,
    directory: string,
    {
      chaos,
      driver = softGpu(),
    }: { readonly chaos?: number | undefined; readonly driver?: string | undefined },
  ): Promise<ModelPlace> {
    const base: NodeJS.ProcessEnv = {
      ...toolEnvironment(),
      MILLPOND_SOFTGPU_STATE: directory,
      MILLPOND_SOFTGPU_MEMORY: "1Gi",
      MILLPOND_SOFTGPU_DEVICES: "2",
      ...(chaos === undefined ? {} : { MILLPOND_SOFTGPU_CHAOS: String(chaos) }),
      // Lazily loaded kernels would wait for the context at their first launch.
      CUDA_MODULE_LOADING: "EAGER",
    };
    const lines: string[] = [];
    if (way.transport === "native") return new ModelPlace(base, undefined, undefined, lines);
    if (way.transport === "direct")
      return new ModelPlace(
        { ...base, LD_LIBRARY_PATH: join(nativeDir("release"), "softgpu") },
        undefined,
        undefined,
        lines,
      );
    const secret = way.transport === "tls" ? randomBytes(32).toString("hex") : "";
    const worker = Background.start(
      workerProgram(),
      await workerArguments(way, directory, driver, secret, base),
      {
        cwd: root,
        env: { ...base, MILLPOND_LOG: "info" },
        onLine: (line) => lines.push(line),
      },
    );
    const port = await portOf(worker, directory, lines);
    const relay = way.hasCuts ? await CuttingRelay.open(port, chaos ?? 1) : undefined;
    const address =
      way.transport === "shm" ? `unix:${directory}/data` : `tcp:127.0.0.1:${relay?.port ?? port}`;
    const environment = {
      ...base,
      LD_LIBRARY_PATH: join(nativeDir("release"), "client"),
      MILLPOND_WORKER: address,
      MILLPOND_TICKET: "t",
      ...(secret === "" ? {} : { MILLPOND_LINK_SECRET: secret }),
    };
    return new ModelPlace(environment, worker, relay, lines);
  }

  private constructor(
    environment: NodeJS.ProcessEnv,
    worker: Background | undefined,
    relay: CuttingRelay | undefined,
    lines: readonly string[],
  ) {
    this.environment = environment;
    this.#worker = worker;
    this.#relay = relay;
    this.#lines = lines;
  }

  /** The last part of the worker's log. */
  async said(): Promise<string> {
    return this.#lines.slice(-8).join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay?.[Symbol.asyncDispose]();
    await this.#worker?.[Symbol.asyncDispose]();
  }
}

async function workerArguments(
  way: Way,
  directory: string,
  driver: string,
  linkSecret: string,
  env: NodeJS.ProcessEnv,
): Promise<string[]> {
  const probe = await must(workerProgram(), ["--driver", driver, "--probe"], { env });
  const uuids = [...probe.matchAll(/"uuid":"([^"]+)"/g)].map((match) => match[1]);
  const computePercent = way.isGated ? 50 : 100;
  const assignment = {
    session: "s",
    ticket: "t",
    expires: 4_000_000_000,
    linkSecret,
    devices: uuids.map((uuid) => ({ uuid, memoryBytes: memoryOfSession, computePercent })),
  };
  return [
    "--driver",
    driver,
    "--id",
    "w",
    "--control",
    join(directory, "control"),
    "--data",
    join(directory, "data"),
    "--tcp",
    "127.0.0.1",
    ...(way.isGated ? ["--gates", directory] : []),
    "--assign",
    JSON.stringify(assignment),
  ];
}

/** The TCP port of a worker, when it is ready. */
async function portOf(worker: Background, directory: string, lines: readonly string[]): Promise<number> {
  const deadline = performance.now() + startMs;
  let status: number | undefined;
  void worker.ended.then((ended) => {
    status = ended;
  });
  while (performance.now() < deadline && status === undefined) {
    const port = lines.map((line) => /TCP port (\d+)$/.exec(line)?.[1]).find((each) => each !== undefined);
    if (port !== undefined && existsSync(join(directory, "control"))) return Number(port);
    await delay(10);
  }
  throw new ScriptError(`the worker did not start (status ${status ?? "none"}):\n${lines.join("\n")}`);
}
