// SPDX-License-Identifier: Apache-2.0

// npm run bench:frameworks -- --driver LIB [options]: PyTorch natively and through Millpond. See --help.

import { spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { isDeepStrictEqual, parseArgs } from "node:util";
import { probeDriver } from "@millpond/agent";
import { toCount } from "@millpond/cli";
import { BenchPool } from "./pool/bench-pool.ts";
import { BenchWorker } from "./bench-worker.ts";
import { divideCpus, ownCpus, pinned } from "./cpu-sets.ts";
import { DelayRelay } from "./delay-relay.ts";
import { describeMachine, type Machine } from "./results/machine.ts";
import { findPrograms } from "./programs.ts";

/** How the programs reach the device. */
const compared = ["native", "shm", "tcp", "tls"] as const;
type Transport = (typeof compared)[number];

const help = `usage: npm run bench:frameworks -- --driver LIB [options]

  --driver LIB       driver library of the card; it is put before all others for the native runs
  --python PROGRAM   a Python with PyTorch; default: python3
  --workloads LIST   of micro,rn152,rn50t,gpt,rn18; default: all
  --rounds N         how often each is started anew, on every transport in turns; default: 5
  --transports LIST  of native,shm,tcp,tls; default: all
  --delay US         TCP and TLS go through a relay that delays them by that, each way, as a network does; default: 0
  --timeout SECONDS  of one run of one workload; default: 300
  --json FILE        where the result goes; default: build/frameworks-result.json
`;

/** The repository's root, or the unpacked archive's. */
const root = join(import.meta.dirname, "..", "..");

const allWorkloads = ["micro", "rn152", "rn50t", "gpt", "rn18"] as const;

/** The Python program's output for one step. */
interface Step {
  readonly name: string;
  readonly ms: number;
  readonly check: unknown;
}

interface Figures {
  native_ms: number | null;
  shm_ms: number | null;
  tcp_ms: number | null;
  tls_ms: number | null;
  rounds: number;
  /** Whether the results were the same on every transport and in every round; null: nothing was compared. */
  same: boolean | null;
}

interface Result extends Machine {
  readonly date: string;
  readonly workloads: Record<string, Figures>;
  /** Failed runs, with the last lines of their output. */
  readonly failures: { readonly workload: string; readonly transport: Transport; readonly said: string }[];
}

interface Run {
  readonly steps: readonly Step[];
  /** Undefined after a success. */
  readonly failure: string | undefined;
}

const keptLines = 15;

async function runOnce(command: readonly string[], env: NodeJS.ProcessEnv, timeoutMs: number): Promise<Run> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    env,
    stdio: ["ignore", "pipe", "pipe"],
    timeout: timeoutMs,
    killSignal: "SIGKILL",
  });
  const steps: Step[] = [];
  const said: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (line.startsWith("{")) steps.push(JSON.parse(line) as Step);
  });
  createInterface({ input: child.stderr }).on("line", (line) => {
    said.push(line);
    if (said.length > keptLines) said.shift();
  });
  const status = await new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) =>
      resolve(code === 0 ? "" : `ended with ${signal ?? `status ${code}`}`),
    );
  });
  return { steps, failure: status === "" ? undefined : [...said, status].join("\n") };
}

function median(values: readonly number[]): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const [low, high] = [sorted[sorted.length % 2 === 1 ? middle : middle - 1], sorted[middle]];
  return low === undefined || high === undefined ? null : Number(((low + high) / 2).toFixed(4));
}

/** Collects the steps of all runs. */
class Gathered {
  readonly #times = new Map<string, Map<Transport, number[]>>();
  readonly #checks = new Map<string, unknown[]>();

  add(transport: Transport, { name, ms, check }: Step): void {
    const times = this.#times.get(name) ?? new Map<Transport, number[]>();
    times.set(transport, [...(times.get(transport) ?? []), ms]);
    this.#times.set(name, times);
    if (check !== null) this.#checks.set(name, [...(this.#checks.get(name) ?? []), check]);
  }

  figures(): Record<string, Figures> {
    return Object.fromEntries(
      [...this.#times].map(([name, times]) => {
        const of = (transport: Transport) => median(times.get(transport) ?? []);
        const checks = this.#checks.get(name);
        const figures: Figures = {
          native_ms: of("native"),
          shm_ms: of("shm"),
          tcp_ms: of("tcp"),
          tls_ms: of("tls"),
          rounds: Math.max(...[...times.values()].map(({ length }) => length)),
          same: checks === undefined ? null : checks.every((check) => isDeepStrictEqual(check, checks[0])),
        };
        return [name, figures];
      }),
    );
  }
}

function formatTable(workloads: Record<string, Figures>): string {
  const ms = (value: number | null) => (value === null ? "-" : value.toFixed(3)).padStart(10);
  const ratio = (value: number | null, native: number | null) =>
    (value === null || native === null ? "-" : `${(value / native).toFixed(2)}×`).padStart(8);
  const head = `${"ms per iteration".padEnd(34)}${"native".padStart(10)}${"shm".padStart(10)}${"".padStart(8)}${"tcp".padStart(10)}${"".padStart(8)}${"tls".padStart(10)}${"".padStart(8)}  same result`;
  const rows = Object.entries(workloads).map(
    ([name, { native_ms, shm_ms, tcp_ms, tls_ms, same }]) =>
      `${name.padEnd(34)}${ms(native_ms)}${ms(shm_ms)}${ratio(shm_ms, native_ms)}${ms(tcp_ms)}${ratio(tcp_ms, native_ms)}${ms(tls_ms)}${ratio(tls_ms, native_ms)}  ${same === null ? "" : same ? "yes" : "NO"}`,
  );
  return [head, ...rows].join("\n");
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      driver: { type: "string" },
      python: { type: "string", default: "python3" },
      workloads: { type: "string", default: allWorkloads.join(",") },
      rounds: { type: "string", default: "5" },
      delay: { type: "string", default: "0" },
      transports: { type: "string", default: compared.join(",") },
      timeout: { type: "string", default: "300" },
      json: { type: "string", default: join(root, "build", "frameworks-result.json") },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help || values.driver === undefined) {
    process.stdout.write(help);
    process.exitCode = values.help ? 0 : 2;
    return;
  }
  const { driver } = values;
  const programs = findPrograms(process.env);
  const probe = await probeDriver({ worker: programs.worker, driver, timeoutMs: 120_000 });
  const [device] = probe.devices;
  if (device === undefined) throw new Error(`${driver} has no device`);
  const delayMicroseconds = toCount("delay", values.delay, 0, 1_000_000);
  const cpus = divideCpus(await ownCpus(), { hasRelay: delayMicroseconds > 0 });
  const machine = {
    ...describeMachine(probe, device),
    clientCpus: cpus.client,
    workerCpus: cpus.worker,
    delayMicroseconds,
  };
  const script = join(root, "bench", "frameworks", "workloads.py");
  const inherited = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith("MILLPOND_")),
  );
  // Deterministic matrix products need the workspace setting. One device is also set for PyTorch, which asks NVML for the
  // number of devices of the host.
  const base = { ...inherited, CUBLAS_WORKSPACE_CONFIG: ":4096:8", CUDA_VISIBLE_DEVICES: "0" };
  const gathered = new Gathered();
  const failures: Result["failures"] = [];
  const [wrapper, wrapperArgs] = pinned(cpus.worker, "env", []);
  await using pool = await BenchPool.start({ root, isSoft: false, wrapper: [wrapper, ...wrapperArgs] });
  const remoted = { ...base, LD_LIBRARY_PATH: dirname(programs.client) };
  /**
   * Runs `use` in the environment of a transport. A pool on one host neither encrypts nor delays, so other transports use a
   * separate worker.
   */
  const through = async <T>(
    transport: Transport,
    use: (env: NodeJS.ProcessEnv) => Promise<T>,
  ): Promise<T> => {
    if (transport === "native") return await use({ ...base, LD_LIBRARY_PATH: dirname(driver) });
    if (transport === "shm" || (transport === "tcp" && delayMicroseconds === 0)) {
      await pool.warm();
      return await use({ ...remoted, ...pool.environment(transport) });
    }
    const { uuid, memoryBytes } = device;
    const options = {
      worker: programs.worker,
      driver,
      uuid,
      memoryBytes,
      carrier: transport,
      cpus: cpus.worker,
    };
    await using worker = await BenchWorker.start(options);
    await using network =
      delayMicroseconds === 0
        ? undefined
        : await DelayRelay.start(programs.transportBench, worker.tcpPort, delayMicroseconds, cpus.relay);
    return await use({ ...remoted, ...worker.environment(transport, network?.port) });
  };
  const chosen = compared.filter((transport) => values.transports.split(",").includes(transport));
  for (const workload of values.workloads.split(",")) {
    for (let round = 0; round < Number(values.rounds); round += 1) {
      for (const transport of chosen) {
        if (failures.some((each) => each.workload === workload && each.transport === transport)) continue;
        process.stderr.write(`${workload}, ${transport}, round ${round + 1}\n`);
        const [program, args] = pinned(cpus.client, values.python, [script, workload]);
        const run = await through(transport, (env) =>
          runOnce([program, ...args], env, Number(values.timeout) * 1000),
        );
        for (const step of run.steps) gathered.add(transport, step);
        if (run.failure !== undefined) failures.push({ workload, transport, said: run.failure });
      }
    }
  }
  const result: Result = {
    ...machine,
    date: `${new Date().toISOString().slice(0, 19)}Z`,
    workloads: gathered.figures(),
    failures,
  };
  console.log(`${machine.hardware}, ${machine.cpu}, ${machine.cores} cores, load ${machine.load} before\n`);
  console.log(formatTable(result.workloads));
  for (const { workload, transport, said } of failures)
    console.log(`\n${workload} over ${transport} FAILED:\n${said}`);
  await mkdir(dirname(values.json), { recursive: true });
  await writeFile(values.json, `${JSON.stringify(result, undefined, 2)}\n`);
  if (failures.length > 0 || Object.values(result.workloads).some(({ same }) => same === false))
    process.exitCode = 1;
}

try {
  await main();
} catch (error) {
  console.error(`error: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
