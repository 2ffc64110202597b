// SPDX-License-Identifier: Apache-2.0

// npm run bench:flood [-- options]: sessions and calls of one tenant while another one reaches all its limits and floods the
// services.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { setPriority } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { probeDriver } from "@millpond/agent";
import { runTool, toCount } from "@millpond/cli";
import { BenchPool } from "./pool/bench-pool.ts";
import { describeMachine } from "./results/machine.ts";
import { findPrograms, measureWith, type Programs } from "./programs.ts";
import { quantile } from "./results/samples.ts";

const help = `usage: npm run bench:flood -- [options]

  --rounds N       rounds of a quiet time, a flood of the device, one of the services, and both at once; default: 3
  --seconds N      how long calls are measured in each; default: 5
  --opens N        how many sessions are opened in each, one after the other; default: 5
  --processes N    processes of the flooding tenant that keep its vGPU busy, beside one that has all its memory; default: 8
  --json FILE      where the result goes; default: build/flood-result.json
  --save NAME      also writes bench/results/NAME.json, which is committed

The bars, in a flood of both: each session opens within 1000 ms, and the p99 of a session's calls is at most 3 times that of the
quiet times of the same run. Beyond one of them the exit status is 1.
`;

const root = join(import.meta.dirname, "..", "..");
const bars = { openMs: 1000, p99Ratio: 3 };

/** The share of the GPU that each tenant has. */
const part = { MILLPOND_MEMORY: "40%", MILLPOND_COMPUTE: "40%" };
/** Kernels per request of the measured tenant, and of the flooding one; on a software GPU 30 µs and 3 ms. */
const rounds = { measured: "10", flooding: "1000" };
const periodUs = "10000";
/** The generators of the flood stand for other hosts: they use only processor time that is left over. */
const lowestPriority = 19;
/** How long the flood takes to build up. */
const settleMs = 2_000;

const floods = ["device", "services", "both"] as const;
type FloodOf = (typeof floods)[number];

interface Options {
  readonly rounds: number;
  readonly seconds: number;
  readonly opens: number;
  readonly processes: number;
  readonly files: readonly string[];
}

/** Milliseconds of each opened session, from `cuInit` to a kernel's result, and microseconds of each call. */
interface Measured {
  readonly openMs: number[];
  readonly callUs: number[];
  readonly apiUs: number[];
}

interface Site {
  readonly programs: Programs;
  readonly pool: BenchPool;
  readonly controller: string;
  readonly agent: string;
  readonly quiet: string;
  readonly loud: string;
}

function environmentOf({ controller }: Site, token: string): Record<string, string> {
  return { MILLPOND_CONTROLLER: controller, MILLPOND_TOKEN: token, MILLPOND_TRANSPORT: "shm", ...part };
}

async function measure(site: Site, { seconds, opens }: Options, into: Measured): Promise<void> {
  const { client, driverBench, shareBench } = site.programs;
  const environment = environmentOf(site, site.quiet);
  for (let opened = 0; opened < opens; opened += 1) {
    const printed = await measureWith(driverBench, [client, "first-kernel"], environment);
    into.openMs.push(...(JSON.parse(printed) as { first_kernel: number[] }).first_kernel);
  }
  const requests = ["requests", rounds.measured, String(seconds), "1", periodUs];
  const program = measureWith(shareBench, [client, ...requests], environment);
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    const begun = performance.now();
    await listClaims(site);
    into.apiUs.push((performance.now() - begun) * 1000);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  into.callUs.push(...(JSON.parse(await program) as { request_us: number[] }).request_us);
}

async function listClaims({ controller, quiet }: Site): Promise<void> {
  const response = await fetch(`${controller}/millpond.v1.ClaimService/ListClaims`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${quiet}` },
    body: "{}",
  });
  if (!response.ok) throw new Error(`ListClaims: ${await response.text()}`);
  await response.arrayBuffer();
}

/** The other tenant, at the limits of its claim, of its calls, or both, until this is disposed of. */
class Flood implements AsyncDisposable {
  readonly #children: ChildProcess[] = [];
  #flooder: ChildProcess | undefined;
  #said = "";

  constructor(site: Site, { processes }: Options, of: FloodOf) {
    if (of !== "services") this.#occupyDevice(site, processes);
    if (of !== "device") this.#flooder = this.#callServices(site);
  }

  #occupyDevice(site: Site, processes: number): void {
    const { client, shareBench } = site.programs;
    const environment = { ...process.env, ...environmentOf(site, site.loud), MILLPOND_CLAIM: loudClaim };
    const examples = join(root, "examples", "prebuilt", "millpond-examples");
    // More than the claim has: this program takes all that is left, and keeps asking for more until it ends.
    const hog = `while :; do '${examples}' memhog 4 > /dev/null 2>&1 || sleep 0.05; done`;
    this.#start("sh", ["-c", hog], { ...environment, LD_LIBRARY_PATH: dirname(client) });
    for (let each = 0; each < processes; each += 1)
      this.#start(shareBench, [client, "busy", rounds.flooding, "3600"], environment);
  }

  #callServices({ controller, loud, agent }: Site): ChildProcess {
    const flooder = join(root, "bench", "tools", "flooder.ts");
    const child = spawn(process.execPath, [flooder, controller, loud, agent], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      this.#said += text;
    });
    if (child.pid !== undefined) setPriority(child.pid, lowestPriority);
    return child;
  }

  #start(command: string, args: readonly string[], env: NodeJS.ProcessEnv): void {
    const child = spawn(command, args, { env, stdio: "ignore", detached: true });
    child.on("error", () => undefined);
    if (child.pid !== undefined) setPriority(child.pid, lowestPriority);
    this.#children.push(child);
  }

  /**
   * Ends the flood; resolves with the numbers of its calls.
   *
   * @throws Error if one of its processes has ended before
   */
  async end(): Promise<FloodCounts> {
    const lost = this.#children.filter(
      ({ exitCode, signalCode }) => exitCode !== null || signalCode !== null,
    );
    if (lost.length > 0) throw new Error(`${lost.length} processes of the flood have ended`);
    if (this.#flooder !== undefined) {
      const flooder = this.#flooder;
      const ended = new Promise((resolve) => flooder.once("close", resolve));
      flooder.stdin?.end();
      await ended;
    }
    await this[Symbol.asyncDispose]();
    return JSON.parse(this.#said || "{}") as FloodCounts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#flooder?.kill("SIGKILL");
    for (const child of this.#children.splice(0)) {
      if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      // Including the programs that a shell has started.
      process.kill(-child.pid, "SIGKILL");
      await ended;
    }
  }
}

/** Calls of a flood by their outcome, and silent connections that were closed. */
type FloodCounts = Partial<Record<"answered" | "refused" | "broken" | "closed", number>>;

const loudClaim = "loud";

async function makeSite(pool: BenchPool, programs: Programs): Promise<Site> {
  const tokenOf = async (name: string): Promise<string> => {
    await pool.ask("QueueService/PutTenant", { tenant: { name } });
    const made = await pool.ask("AccessService/CreateToken", { name, role: "user", tenant: name });
    return (made as { secret: string }).secret;
  };
  const { nodes } = (await pool.ask("PoolService/ListNodes")) as { nodes: { agentUrl: string }[] };
  const [quiet, loud] = [await tokenOf("quiet"), await tokenOf("loud")];
  const claim = {
    name: loudClaim,
    gpus: 1,
    memoryPercent: 40,
    computePercent: 40,
    tenant: "loud",
    leaseSeconds: 86_400,
  };
  await pool.ask("ClaimService/CreateClaim", { claim, noWait: true });
  const controller = pool.environment("shm")["MILLPOND_CONTROLLER"] ?? "";
  return { programs, pool, controller, agent: nodes[0]?.agentUrl ?? "", quiet, loud };
}

function figures({ openMs, callUs, apiUs }: Measured) {
  const of = (samples: readonly number[]) => {
    const sorted = samples.toSorted((a, b) => a - b);
    const at = (share: number): number => Number(quantile(sorted, share).toPrecision(4));
    return { p50: at(0.5), p99: at(0.99), most: at(1), samples: samples.length };
  };
  return { openMs: of(openMs), callUs: of(callUs), apiUs: of(apiUs) };
}

type Figures = ReturnType<typeof figures>;

const emptyMeasured = (): Measured => ({ openMs: [], callUs: [], apiUs: [] });

async function measureAll(site: Site, options: Options) {
  const quiet = emptyMeasured();
  const flooded = { device: emptyMeasured(), services: emptyMeasured(), both: emptyMeasured() };
  const counts: FloodCounts[] = [];
  for (let round = 0; round < options.rounds; round += 1) {
    await site.pool.warm();
    await measure(site, options, quiet);
    for (const of of floods) {
      await using flood = new Flood(site, options, of);
      await new Promise((resolve) => setTimeout(resolve, settleMs));
      await measure(site, options, flooded[of]);
      counts.push(await flood.end());
    }
  }
  const sum = (of: keyof FloodCounts): number => counts.reduce((total, each) => total + (each[of] ?? 0), 0);
  return {
    quiet: figures(quiet),
    device: figures(flooded.device),
    services: figures(flooded.services),
    both: figures(flooded.both),
    floodCalls: {
      answered: sum("answered"),
      refused: sum("refused"),
      broken: sum("broken"),
      closed: sum("closed"),
    },
  };
}

/** Undefined if only help is requested. */
function readOptions(args: string[]): Options | undefined {
  const { values } = parseArgs({
    args,
    options: {
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "5" },
      opens: { type: "string", default: "5" },
      processes: { type: "string", default: "8" },
      json: { type: "string", default: join(root, "build", "flood-result.json") },
      save: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  return {
    rounds: toCount("rounds", values.rounds, 1, 100),
    seconds: toCount("seconds", values.seconds, 1, 600),
    opens: toCount("opens", values.opens, 1, 1000),
    processes: toCount("processes", values.processes, 1, 100),
    files: [
      values.json,
      ...(values.save === undefined ? [] : [join(root, "bench", "results", `${values.save}.json`)]),
    ],
  };
}

async function run(options: Options): Promise<void> {
  const programs = findPrograms(process.env);
  const probe = await probeDriver({ worker: programs.worker, driver: programs.softgpu, timeoutMs: 120_000 });
  const [device] = probe.devices;
  if (device === undefined) throw new Error("the software GPU has no device");
  const machine = describeMachine(probe, device);
  console.log(`${machine.hardware}, ${machine.cpu}, ${machine.cores} cores, load ${machine.load} before`);
  await using pool = await BenchPool.start({
    root,
    isSoft: true,
    upOptions: ["--nodes", "1", "--devices", "1"],
  });
  const measured = await measureAll(await makeSite(pool, programs), options);
  const ratioOf = (of: FloodOf, what: "callUs" | "apiUs"): number =>
    Number((measured[of][what].p99 / measured.quiet[what].p99).toPrecision(3));
  const line = (what: string, { openMs, callUs, apiUs }: Figures): string =>
    `${what.padEnd(10)} sessions open within ${openMs.most} ms, p99 of calls ${callUs.p99} µs, of the API ${apiUs.p99} µs`;
  console.log(line("quiet", measured.quiet));
  const ratios: Partial<Record<FloodOf, { readonly callP99: number; readonly apiP99: number }>> = {};
  for (const of of floods) {
    const ratio = { callP99: ratioOf(of, "callUs"), apiP99: ratioOf(of, "apiUs") };
    ratios[of] = ratio;
    console.log(`${line(of, measured[of])}: × ${ratio.callP99}, × ${ratio.apiP99}`);
  }
  const date = `${new Date().toISOString().slice(0, 19)}Z`;
  const { files, ...how } = options;
  const result = `${JSON.stringify({ ...machine, date, ...how, ...measured, ratios }, undefined, 2)}\n`;
  for (const file of files) {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, result);
    console.log(file);
  }
  if (measured.both.openMs.most > bars.openMs || ratioOf("both", "callUs") > bars.p99Ratio) {
    process.exitCode = 1;
    console.log("beyond the bars");
  }
}

await runTool({ help, readOptions, run });
