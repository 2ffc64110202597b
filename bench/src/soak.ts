// SPDX-License-Identifier: Apache-2.0

// npm run bench:soak [-- options]: long-running work, with the memory of every process over time. See --help.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { loadavg } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { probeDriver } from "@millpond/agent";
import { runTool, toCount, UsageError } from "@millpond/cli";
import { BenchWorker } from "./bench-worker.ts";
import { residentBytes } from "./load/process-figures.ts";
import { BenchPool } from "./pool/bench-pool.ts";
import { findPrograms, measureWith, type Programs } from "./programs.ts";
import { growthOf, type MemorySample } from "./results/growth.ts";
import { describeMachine } from "./results/machine.ts";
import { type Carrier, transports } from "./results/metrics.ts";

const help = `usage: npm run bench:soak -- [options]

  --driver LIB        driver library to use; default: the software GPU
  --transports LIST   of shm,tcp,tls; default: all, one after the other
  --captures N        graphs that a program captures; 0: none; default: 1000000
  --seconds N         for which a program trains; 0: not at all; default: 3600
  --sessions N        that a pool serves, one after the other, over shared memory; 0: none; default: 100000
  --json FILE         where the result goes; default: build/soak-result.json
  --save NAME         also writes bench/results/NAME.json, which is committed

Memory is resident memory. It is flat where the second half of a run ends with as much as it began with, within 4 % and 2 MiB.
Ends with status 1 where it is not, or where a program computed something else.
`;

const root = join(import.meta.dirname, "..", "..");
const samplesOfSessions = 40;

type Kind = "captures" | "training" | "sessions";

interface Outcome {
  readonly kind: Kind;
  readonly transport: Carrier;
  readonly done: number;
  readonly seconds: number;
  readonly memory: Readonly<Record<string, readonly MemorySample[]>>;
  readonly grown: Readonly<Record<string, number>>;
  readonly isFlat: boolean;
}

interface Options {
  readonly driver: string | undefined;
  readonly carriers: readonly Carrier[];
  readonly captures: number;
  readonly seconds: number;
  readonly sessions: number;
  readonly files: readonly string[];
}

function summarise(
  kind: Kind,
  transport: Carrier,
  begun: number,
  memory: ReadonlyMap<string, readonly MemorySample[]>,
): Outcome {
  const growths = [...memory].map(([name, samples]) => [name, growthOf(samples)] as const);
  return {
    kind,
    transport,
    done: Math.max(...[...memory.values()].map((samples) => samples.at(-1)?.done ?? 0)),
    seconds: Number(((performance.now() - begun) / 1000).toFixed(1)),
    memory: Object.fromEntries(memory),
    grown: Object.fromEntries(growths.map(([name, { mebibytes }]) => [name, mebibytes])),
    isFlat: growths.every(([, { isFlat }]) => isFlat),
  };
}

/** One long-running program, and its worker. */
async function runProgram(
  kind: "captures" | "training",
  amount: number,
  carrier: Carrier,
  programs: Programs,
  device: { readonly driver: string; readonly uuid: string; readonly memoryBytes: number },
): Promise<Outcome> {
  await using worker = await BenchWorker.start({ worker: programs.worker, carrier, ...device });
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("MILLPOND_"));
  const env = { ...Object.fromEntries(inherited), ...worker.environment(carrier) };
  const begun = performance.now();
  const child = spawn(programs.driverBench, [programs.client, kind, String(amount)], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  const memory = new Map<string, MemorySample[]>([
    ["client", []],
    ["worker", []],
  ]);
  for await (const line of createInterface({ input: child.stdout })) {
    const { done, residentKiB, ends } = JSON.parse(line) as {
      done: number;
      residentKiB: number;
      ends: boolean;
    };
    memory.get("client")?.push({ done, mebibytes: toMebibytes(residentKiB * 1024) });
    // The worker ends with the program.
    if (!ends) memory.get("worker")?.push({ done, mebibytes: (await worker.memory()).resident });
    process.stderr.write(`${kind} over ${carrier}: ${done}\n`);
  }
  const [status, signal] = await ended;
  if (status !== 0) throw new Error(`${kind} over ${carrier} ended with ${signal ?? `status ${status}`}`);
  return summarise(kind, carrier, begun, memory);
}

function toMebibytes(bytes: number): number {
  return Number((bytes / 2 ** 20).toFixed(2));
}

/** Programs one after the other, each with its own session, and the controller and agent that serve them. */
async function runSessions(count: number, programs: Programs, isSoft: boolean): Promise<Outcome> {
  await using pool = await BenchPool.start({ root, isSoft, upOptions: isSoft ? ["--devices", "1"] : [] });
  const begun = performance.now();
  const memory = new Map<string, MemorySample[]>();
  const services = await pool.services();
  for (let done = 0; done < count; done += 1) {
    if (done % Math.max(1, Math.floor(count / samplesOfSessions)) === 0) {
      await pool.warm();
      for (const { name, pid } of services) {
        const samples = memory.get(name) ?? [];
        samples.push({ done, mebibytes: toMebibytes(await residentBytes(pid)) });
        memory.set(name, samples);
      }
      process.stderr.write(`sessions: ${done}\n`);
    }
    await measureWith(programs.driverBench, [programs.client, "first-kernel"], pool.environment("shm"));
  }
  return summarise("sessions", "shm", begun, memory);
}

/** Undefined if only help is requested. */
function readOptions(args: string[]): Options | undefined {
  const { values } = parseArgs({
    args,
    options: {
      driver: { type: "string" },
      transports: { type: "string", default: "shm,tcp,tls" },
      captures: { type: "string", default: "1000000" },
      seconds: { type: "string", default: "3600" },
      sessions: { type: "string", default: "100000" },
      json: { type: "string", default: join(root, "build", "soak-result.json") },
      save: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  const carriers = values.transports.split(",").map((name) => {
    const found = transports.find((each) => each === name);
    if (found === undefined || found === "native")
      throw new UsageError(`--transports: ${name} is not one of shm, tcp, tls`);
    return found;
  });
  return {
    driver: values.driver,
    carriers,
    captures: toCount("captures", values.captures, 0, 1e9),
    seconds: toCount("seconds", values.seconds, 0, 1e6),
    sessions: toCount("sessions", values.sessions, 0, 1e9),
    files: [
      values.json,
      ...(values.save === undefined ? [] : [join(root, "bench", "results", `${values.save}.json`)]),
    ],
  };
}

async function run({ driver: named, carriers, captures, seconds, sessions, files }: Options): Promise<void> {
  const programs = findPrograms(process.env);
  const driver = named ?? programs.softgpu;
  const probe = await probeDriver({ worker: programs.worker, driver, timeoutMs: 120_000 });
  const [device] = probe.devices;
  if (device === undefined) throw new Error(`${driver} has no device`);
  const { uuid, memoryBytes } = device;
  const machine = describeMachine(probe, device);
  const outcomes: Outcome[] = [];
  for (const carrier of carriers) {
    if (captures > 0)
      outcomes.push(await runProgram("captures", captures, carrier, programs, { driver, uuid, memoryBytes }));
    if (seconds > 0)
      outcomes.push(await runProgram("training", seconds, carrier, programs, { driver, uuid, memoryBytes }));
  }
  if (sessions > 0) outcomes.push(await runSessions(sessions, programs, device.kind === "softgpu"));
  for (const { kind, transport, done, seconds: took, grown, isFlat } of outcomes)
    console.log(
      `${kind} ${transport}: ${done} in ${took} s, second half ${Object.entries(grown)
        .map(([name, mebibytes]) => `${name} ${mebibytes >= 0 ? "+" : ""}${mebibytes} MiB`)
        .join(", ")}: ${isFlat ? "flat" : "NOT FLAT"}`,
    );
  const result = { ...machine, loadAfter: loadavg()[0], date: new Date().toISOString(), outcomes };
  for (const file of files) {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, `${JSON.stringify(result, undefined, 2)}\n`);
  }
  if (outcomes.some(({ isFlat }) => !isFlat)) process.exitCode = 1;
}

await runTool({ help, readOptions, run });
