// SPDX-License-Identifier: Apache-2.0

// npm run bench:grants [-- options]: how fast a controller grants claims, and how fast it restarts. See --help.

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { describeHost } from "./results/machine.ts";
import { Placement } from "@millpond/api";
import { runTool, toCount, UsageError } from "@millpond/cli";
import { Claimant } from "./load/claimant.ts";
import { ControllerProcess } from "@millpond/controller/testing/controller-process";
import { cpuSeconds, residentBytes } from "./load/process-figures.ts";
import { quantile } from "./results/samples.ts";
import { SimulatedAgent } from "./load/simulated-agent.ts";

const help = `usage: npm run bench:grants -- [options]

  --nodes N      simulated agents; default: 1000
  --devices N    devices of each; default: 8
  --clients N    who make claims, each one at a time; default: 32
  --standing N   claims that are held meanwhile, spread over the nodes; default: 4000
  --waiting N    claims of whole nodes that wait meanwhile; default: 0
  --seconds N    how long each pass is measured; default: 10
  --passes N     how often; default: 3
  --restart N    measure instead how long a controller with so many claims takes to come back after kill -9
  --store URL    postgres://… of an empty database; default: a file
  --node-options LIST  options of the controller's Node, separated by commas
  --json FILE    where the result goes; default: build/grants-result.json
  --save NAME    also writes bench/results/NAME.json, which is committed
`;

const root = join(import.meta.dirname, "..", "..");

interface Options {
  readonly nodes: number;
  readonly devices: number;
  readonly clients: number;
  readonly standing: number;
  readonly waiting: number;
  readonly seconds: number;
  readonly passes: number;
  readonly restart: number;
  /** Empty: the state is in a file. */
  readonly store: string;
  readonly nodeOptions: readonly string[];
  readonly files: readonly string[];
}

/** The requested shapes, used in turn: compute and memory in percent of one device. */
const shapes = [
  { gpus: 1, memoryPercent: 100 },
  { gpus: 1, memoryPercent: 25, computePercent: 25 },
  { gpus: 2, memoryPercent: 100 },
  { gpus: 1, memoryPercent: 50, computePercent: 50 },
] as const;

/** Number of agents that make their first call concurrently. */
const together = 100;

/** One day, because the leases are not renewed. */
const leaseSeconds = 86_400;

/** A pool of simulated agents under a real controller. */
class Bench implements AsyncDisposable {
  readonly #options: Options;
  readonly #directory: string;
  #controller: ControllerProcess;
  #agents: SimulatedAgent[] = [];
  #clients: Claimant[] = [];
  /** Calls that wait for the acknowledgement of a claim. */
  readonly #waiting = new Map<string, () => void>();
  #claims = 0;

  private constructor(options: Options, directory: string, controller: ControllerProcess) {
    this.#options = options;
    this.#directory = directory;
    this.#controller = controller;
  }

  static async start(options: Options): Promise<Bench> {
    const directory = await mkdtemp(join(tmpdir(), "millpond-bench-grants-"));
    const bench = new Bench(options, directory, await ControllerProcess.start(directory, options));
    await bench.#connect();
    return bench;
  }

  async #connect(): Promise<void> {
    const { url, agentToken, userToken } = this.#controller;
    const { nodes, devices, clients } = this.#options;
    for (let node = 0; node < nodes; node += together) {
      const group = Array.from({ length: Math.min(together, nodes - node) }, (_, index) =>
        SimulatedAgent.start({
          url,
          token: agentToken,
          node: `node-${String(node + index).padStart(5, "0")}`,
          devices,
          onAcknowledged: (claim) => this.#waiting.get(claim)?.(),
        }),
      );
      this.#agents.push(...(await Promise.all(group)));
    }
    for (let client = 0; client < clients; client += 1)
      this.#clients.push(await Claimant.open(url, userToken));
  }

  async #disconnect(): Promise<void> {
    for (const client of this.#clients.splice(0)) client.close();
    await Promise.all(this.#agents.splice(0).map((agent) => agent.close()));
  }

  /** Creates claims of shares and keeps them. */
  async fill(count: number, percent: number, placement: Placement): Promise<void> {
    const share = { memoryPercent: percent, computePercent: percent, placement };
    await this.#makeEach(count, (client, name) => client.create({ name, ...share, leaseSeconds }));
  }

  /** Creates claims that must wait, because each requests a node of its own. */
  async enqueue(count: number): Promise<void> {
    const { devices } = this.#options;
    await this.#makeEach(count, (client, name) => client.enqueue({ name, gpus: devices, leaseSeconds }));
  }

  async #makeEach(count: number, make: (client: Claimant, name: string) => Promise<void>): Promise<void> {
    let left = count;
    await this.#everyClient(async (client) => {
      while (left > 0) {
        left -= 1;
        await make(client, this.#nextName());
      }
    });
  }

  async pass() {
    const { seconds } = this.#options;
    const answered: number[] = [];
    const acknowledged: number[] = [];
    const released: number[] = [];
    const [syncsBefore, cpuBefore] = [this.#syncs(), await cpuSeconds(this.#controller.pid)];
    const ownBefore = process.cpuUsage();
    const startMs = performance.now();
    await this.#everyClient(async (client) => {
      while (performance.now() - startMs < seconds * 1000) {
        const name = this.#nextName();
        const shape = shapes[this.#claims % shapes.length] ?? shapes[0];
        const { promise, resolve } = Promise.withResolvers<void>();
        this.#waiting.set(name, resolve);
        const beginMs = performance.now();
        await client.create({ name, ...shape, leaseSeconds });
        answered.push(performance.now() - beginMs);
        await promise;
        acknowledged.push(performance.now() - beginMs);
        this.#waiting.delete(name);
        const releaseMs = performance.now();
        await client.release(name);
        released.push(performance.now() - releaseMs);
      }
    });
    const took = (performance.now() - startMs) / 1000;
    const cpu = (await cpuSeconds(this.#controller.pid)) - cpuBefore;
    const { user, system } = process.cpuUsage(ownBefore);
    const grants = acknowledged.length;
    return {
      grantsPerSecond: rounded(grants / took),
      /** From the request of the claim until its agent has acknowledged the allocation. */
      grantMs: spread(acknowledged),
      /** Until the request was answered. */
      answerMs: spread(answered),
      releaseMs: spread(released),
      syncsPerSecond: rounded((this.#syncs() - syncsBefore) / took),
      /** CPU time of the controller during the measurement, including all other activity. */
      controllerMsPerGrant: rounded((cpu * 1000) / grants),
      controllerCores: rounded(cpu / took),
      /** CPU time of this process: claimants and agents. */
      ownCores: rounded((user + system) / 1e6 / took),
      load: rounded(loadavg()[0] ?? 0),
    };
  }

  /** Kills the controller and restarts it. */
  async restart() {
    await this.#disconnect();
    await this.#controller.end("SIGKILL");
    const startMs = performance.now();
    this.#controller = await ControllerProcess.start(this.#directory, this.#options);
    const listensMs = performance.now() - startMs;
    await this.#connect();
    const reportedMs = performance.now() - startMs;
    const [client] = this.#clients;
    if (client === undefined) throw new Error("there are no clients");
    const name = this.#nextName();
    await client.create({ name, ...shapes[1], leaseSeconds });
    const grantedMs = performance.now() - startMs;
    await client.release(name);
    return {
      listensSeconds: rounded(listensMs / 1000),
      /** Until every agent has been answered. */
      reportedSeconds: rounded(reportedMs / 1000),
      /** Until a claim was granted after the restart. */
      grantedSeconds: rounded(grantedMs / 1000),
      load: rounded(loadavg()[0] ?? 0),
    };
  }

  async residentMiB(): Promise<number> {
    return Math.round((await residentBytes(this.#controller.pid)) / 2 ** 20);
  }

  async #everyClient(act: (client: Claimant) => Promise<void>): Promise<void> {
    await Promise.all(this.#clients.map(act));
  }

  #syncs(): number {
    return this.#agents.reduce((sum, { syncs }) => sum + syncs, 0);
  }

  #nextName(): string {
    this.#claims += 1;
    return `claim-${this.#claims}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#disconnect();
    await this.#controller.end("SIGTERM");
    await rm(this.#directory, { recursive: true, force: true });
  }
}

function spread(samples: readonly number[]) {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number): number => rounded(quantile(sorted, share));
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

function rounded(value: number): number {
  return Number(value.toPrecision(4));
}

async function measure(options: Options) {
  await using bench = await Bench.start(options);
  const { nodes, devices, standing, waiting, passes, restart } = options;
  const gpus = nodes * devices;
  if (restart > 0) {
    await bench.fill(restart, 5, Placement.BINPACK);
    const restarts = [];
    for (let pass = 0; pass < passes; pass += 1) {
      restarts.push(await bench.restart());
      say(restarts.at(-1));
    }
    return { gpus, claims: restart, restarts, residentMiB: await bench.residentMiB() };
  }
  const emptyMiB = await bench.residentMiB();
  await bench.fill(standing, 25, Placement.SPREAD);
  await bench.enqueue(waiting);
  const measured = [];
  for (let pass = 0; pass < passes; pass += 1) {
    measured.push(await bench.pass());
    say(measured.at(-1));
  }
  const residentMiB = await bench.residentMiB();
  return {
    gpus,
    clients: options.clients,
    standing,
    waiting,
    passes: measured,
    /** Memory of the controller, before the first claim and at the end. */
    residentMiB: { empty: emptyMiB, end: residentMiB },
  };
}

function say(figures: unknown): void {
  console.log(JSON.stringify(figures));
}

/** Undefined if only help is requested. */
function readOptions(args: string[]): Options | undefined {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args,
    options: {
      nodes: text,
      devices: text,
      clients: text,
      standing: text,
      waiting: text,
      seconds: text,
      passes: text,
      restart: text,
      store: text,
      "node-options": text,
      json: text,
      save: text,
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help === true) return undefined;
  if (values.save !== undefined && !/^[a-z0-9][a-z0-9-]*$/.test(values.save))
    throw new UsageError(`--save: ${values.save} is no name of small letters, digits and dashes`);
  const count = (option: Exclude<keyof typeof values, "help">, otherwise: number): number =>
    toCount(option, values[option] ?? `${otherwise}`, 0, 1_000_000);
  return {
    nodes: count("nodes", 1000),
    devices: count("devices", 8),
    clients: count("clients", 32),
    standing: count("standing", 4000),
    waiting: count("waiting", 0),
    seconds: count("seconds", 10),
    passes: count("passes", 3),
    restart: count("restart", 0),
    store: values.store ?? "",
    nodeOptions: values["node-options"]?.split(",") ?? [],
    files: [
      values.json ?? join(root, "build", "grants-result.json"),
      ...(values.save === undefined ? [] : [join(root, "bench", "results", `${values.save}.json`)]),
    ],
  };
}

async function run(options: Options): Promise<void> {
  const machine = { ...describeHost(), date: new Date().toISOString().replace(/\.\d+/, "") };
  const result = { ...machine, ...(await measure(options)) };
  for (const file of options.files) {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, `${JSON.stringify(result, undefined, 2)}\n`);
    console.log(file);
  }
}

await runTool({ help, readOptions, run });
