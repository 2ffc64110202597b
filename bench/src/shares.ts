// SPDX-License-Identifier: Apache-2.0

// npm run bench:shares [-- options]: compute shares of the tenants of one GPU, and request latency beside other tenants.

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { probeDriver } from "@millpond/agent";
import type { ServiceClassWord } from "@millpond/api";
import { runTool, toCount, UsageError } from "@millpond/cli";
import { BenchWorker } from "./bench-worker.ts";
import { describeMachine } from "./results/machine.ts";
import { findPrograms, measureWith, type Programs } from "./programs.ts";
import { quantile, summarise } from "./results/samples.ts";
import { commonTime, shares, type Trace } from "./results/windows.ts";

const help = `usage: npm run bench:shares -- [options]

  --driver LIB     driver library to measure on; default: the software GPU
  --seconds N      how long each scenario runs; default: 6
  --only WORDS     scenarios whose name contains one of these, separated by semicolons; "launches" is one, too
  --json FILE      where the result goes; default: build/shares-result.json
`;

const windowNs = 1e9;
/** Time until all tenants are running. */
const skipNs = 1e9;
/** Kernels of a request, and the interval of requests. */
const requestKernels = 20;
const requestPeriodUs = 20_000;
/** Longer than a worker needs to start and the launches take to be measured. */
const idleSeconds = "12";

/** The load of a tenant. Kernels in microseconds. */
type Work =
  | { readonly kind: "busy" | "graphs"; readonly kernelUs: number }
  | { readonly kind: "requests"; readonly kernelUs: number }
  | { readonly kind: "idle" };

interface Tenant {
  readonly name: string;
  readonly serviceClass: ServiceClassWord;
  readonly percent: number;
  readonly work: Work;
}

interface Scenario {
  readonly name: string;
  readonly tenants: readonly Tenant[];
  /** Whether the workers share the device through the gate; without it they serve as a baseline. Default: yes. */
  readonly isGated?: boolean;
}

function busy(serviceClass: ServiceClassWord, percent: number, kernelUs: number): Tenant {
  const name = `${percent}% ${serviceClass}, ${kernelUs} µs`;
  return { name, serviceClass, percent, work: { kind: "busy", kernelUs } };
}
function idle(percent: number): Tenant {
  return { name: "idle", serviceClass: "guaranteed", percent, work: { kind: "idle" } };
}
const requests: Tenant = {
  name: "requests",
  serviceClass: "guaranteed",
  percent: 60,
  work: { kind: "requests", kernelUs: 100 },
};
const graphs: Tenant = {
  name: "30% guaranteed, graphs of 20 × 50 µs",
  serviceClass: "guaranteed",
  percent: 30,
  work: { kind: "graphs", kernelUs: 50 },
};

const scenarios: readonly Scenario[] = [
  { name: "alone 30", tenants: [busy("guaranteed", 30, 50)] },
  { name: "alone 30, 2 ms", tenants: [busy("guaranteed", 30, 2000)] },
  { name: "30/70", tenants: [busy("guaranteed", 30, 50), busy("guaranteed", 70, 50)] },
  { name: "10/90", tenants: [busy("guaranteed", 10, 50), busy("guaranteed", 90, 50)] },
  { name: "30/70, 2 ms/20 µs", tenants: [busy("guaranteed", 30, 2000), busy("guaranteed", 70, 20)] },
  { name: "30/70, graphs", tenants: [graphs, busy("guaranteed", 70, 50)] },
  { name: "burstable beside idle", tenants: [busy("burstable", 30, 50), idle(70)] },
  { name: "burstable beside busy", tenants: [busy("burstable", 30, 50), busy("guaranteed", 70, 50)] },
  { name: "best effort beside 40", tenants: [busy("guaranteed", 40, 50), busy("best-effort", 0, 50)] },
  { name: "requests alone", tenants: [requests, idle(40)] },
  { name: "requests, training best effort", tenants: [requests, busy("best-effort", 0, 500)] },
  { name: "requests, training 40", tenants: [requests, busy("guaranteed", 40, 500)] },
  { name: "requests, kernels of 50 ms", tenants: [requests, busy("best-effort", 0, 50_000)] },
  {
    name: "requests, training, no gate",
    tenants: [requests, busy("guaranteed", 40, 500)],
    isGated: false,
  },
];

interface Plan {
  readonly programs: Programs;
  readonly driver: string;
  readonly uuid: string;
  readonly memoryBytes: number;
  readonly seconds: number;
  /** Rounds of a kernel that takes a microsecond. */
  readonly roundsPerUs: number;
}

interface TenantResult {
  readonly tenant: string;
  readonly serviceClass: ServiceClassWord;
  readonly percent: number;
  /** Percent of the GPU's time in windows of one second. */
  readonly share?: { readonly mean: number; readonly least: number; readonly most: number };
  /** Microseconds. */
  readonly latency?: {
    readonly p50: number;
    readonly p90: number;
    readonly p99: number;
    readonly requests: number;
  };
}

function startWorker(
  plan: Pick<Plan, "programs" | "driver" | "uuid" | "memoryBytes">,
  tenant: Pick<Tenant, "serviceClass" | "percent">,
  gatesPath: string | undefined,
): Promise<BenchWorker> {
  const { programs, driver, uuid } = plan;
  const memoryBytes = Math.floor(plan.memoryBytes / 8);
  return BenchWorker.start({ worker: programs.worker, driver, uuid, memoryBytes, share: tenant, gatesPath });
}

function argumentsOf({ work }: Tenant, { seconds, roundsPerUs }: Plan): string[] {
  if (work.kind === "idle") return ["idle", String(seconds)];
  const rounds = String(Math.max(1, Math.round(work.kernelUs * roundsPerUs)));
  return work.kind === "requests"
    ? ["requests", rounds, String(seconds), String(requestKernels), String(requestPeriodUs)]
    : [work.kind, rounds, String(seconds)];
}

function readNumbers(printed: string, name: string): number[] {
  const { [name]: values = [] } = JSON.parse(printed) as Record<string, number[] | undefined>;
  return values;
}

/** Duration in microseconds of a kernel of `rounds` rounds, directly on the driver. */
async function measureKernelUs(programs: Programs, driver: string, rounds: number): Promise<number> {
  const printed = await measureWith(programs.shareBench, [driver, "calibrate", String(rounds)], {});
  return summarise(readNumbers(printed, "kernel_us")).median;
}

async function runScenario(plan: Plan, scenario: Scenario): Promise<TenantResult[]> {
  const directory = await mkdtemp(join(tmpdir(), "millpond-gates-"));
  try {
    const gates = scenario.isGated === false ? undefined : directory;
    await using workers = new AsyncDisposableStack();
    const started: BenchWorker[] = [];
    for (const tenant of scenario.tenants) started.push(workers.use(await startWorker(plan, tenant, gates)));
    const printed = await Promise.all(
      scenario.tenants.map((tenant, position) =>
        measureWith(
          plan.programs.shareBench,
          [plan.programs.client, ...argumentsOf(tenant, plan)],
          started[position]?.environment("shm") ?? {},
        ),
      ),
    );
    return await gather(plan, scenario, printed);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function gather(
  plan: Plan,
  { tenants }: Scenario,
  printed: readonly string[],
): Promise<TenantResult[]> {
  const traces = printed.map(
    (text): Trace => ({
      at: readNumbers(text, "at_ns"),
      count: readNumbers(text, "count"),
    }),
  );
  const time = commonTime(
    traces.filter(({ at }) => at.length > 0),
    skipNs,
  );
  const results: TenantResult[] = [];
  for (const [position, { name, serviceClass, percent, work }] of tenants.entries()) {
    const result = { tenant: name, serviceClass, percent };
    const trace = traces[position];
    if (work.kind === "requests") {
      const sorted = readNumbers(printed[position] ?? "{}", "request_us").toSorted((a, b) => a - b);
      const at = (part: number): number => Math.round(quantile(sorted, part));
      results.push({
        ...result,
        latency: { p50: at(0.5), p90: at(0.9), p99: at(0.99), requests: sorted.length },
      });
    } else if (work.kind !== "idle" && trace !== undefined) {
      const rounds = Math.max(1, Math.round(work.kernelUs * plan.roundsPerUs));
      const workNs = 1000 * (await measureKernelUs(plan.programs, plan.driver, rounds));
      const parts = shares(trace, time, { workNs, windowNs }).map((part) => Number((part * 100).toFixed(1)));
      if (parts.length === 0) throw new Error(`${name} did not run for a whole window`);
      const mean = Number((parts.reduce((sum, part) => sum + part, 0) / parts.length).toFixed(1));
      results.push({ ...result, share: { mean, least: Math.min(...parts), most: Math.max(...parts) } });
    }
  }
  return results;
}

interface LaunchCost {
  readonly launch_call_us: number;
  readonly launches_finished_per_second: number;
}

/** Cost of a launch: directly on the driver, alone with the whole GPU, and with the gate active. */
async function launchCosts(plan: Plan): Promise<Record<string, LaunchCost>> {
  const effort = ["calls", "20", "1"];
  const costOf = (printed: string): LaunchCost => ({
    launch_call_us: summarise(readNumbers(printed, "launch_call")).median,
    launches_finished_per_second: Math.round(summarise(readNumbers(printed, "launches_finished")).median),
  });
  const { driverBench, client } = plan.programs;
  const whole = { serviceClass: "guaranteed", percent: 100 } as const;
  const through = async (gatesPath: string | undefined): Promise<LaunchCost> => {
    await using worker = await startWorker(plan, whole, gatesPath);
    return costOf(await measureWith(driverBench, [client, ...effort], worker.environment("shm")));
  };
  const native = costOf(await measureWith(driverBench, [plan.driver, ...effort], {}));
  const directory = await mkdtemp(join(tmpdir(), "millpond-gates-"));
  try {
    const without = await through(undefined);
    const alone = await through(directory);
    // An idle neighbour activates the gate.
    await using neighbour = await startWorker(plan, { serviceClass: "best-effort", percent: 0 }, directory);
    const idleRun = measureWith(
      plan.programs.shareBench,
      [client, "idle", idleSeconds],
      neighbour.environment("shm"),
    );
    const shared = await through(directory);
    await idleRun;
    return { native, "no gate": without, "whole GPU": alone, "beside an idle one": shared };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function formatLine({ tenant, share, latency }: TenantResult): string {
  const figures =
    share === undefined
      ? `p50 ${latency?.p50} µs, p90 ${latency?.p90} µs, p99 ${latency?.p99} µs of ${latency?.requests} requests`
      : `${share.mean} % [${share.least} ${share.most}]`;
  return `  ${tenant.padEnd(40)} ${figures}`;
}

interface Options {
  readonly driver: string | undefined;
  readonly seconds: number;
  readonly only: readonly string[];
  readonly json: string;
}

/** Undefined if only help is requested. */
function readOptions(args: string[]): Options | undefined {
  const { values } = parseArgs({
    args,
    options: {
      driver: { type: "string" },
      seconds: { type: "string", default: "6" },
      only: { type: "string", default: "" },
      json: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  const only = values.only.split(";");
  if (
    !["launches", ...scenarios.map(({ name }) => name)].some((name) =>
      only.some((word) => name.includes(word)),
    )
  )
    throw new UsageError(`--only: no scenario's name contains ${values.only}`);
  return {
    driver: values.driver,
    seconds: toCount("seconds", values.seconds, 3, 600),
    only,
    json: values.json ?? join(import.meta.dirname, "..", "..", "build", "shares-result.json"),
  };
}

async function run({ driver: asked, seconds, only, json }: Options): Promise<void> {
  const programs = findPrograms(process.env);
  const driver = asked ?? programs.softgpu;
  const probe = await probeDriver({ worker: programs.worker, driver, timeoutMs: 120_000 });
  const [device] = probe.devices;
  if (device === undefined) throw new Error(`${driver} has no device`);
  const machine = describeMachine(probe, device);
  const { uuid, memoryBytes } = device;
  const trial = 2000;
  const roundsPerUs = trial / (await measureKernelUs(programs, driver, trial));
  const plan: Plan = { programs, driver, uuid, memoryBytes, seconds, roundsPerUs };
  console.log(`${machine.hardware}, ${machine.cpu}, ${machine.cores} cores, load ${machine.load} before`);
  console.log("shares: mean of the windows of a second [least most]\n");
  const isWanted = (name: string): boolean => only.some((word) => name.includes(word));
  const results: { scenario: string; tenants: TenantResult[] }[] = [];
  for (const scenario of scenarios.filter(({ name }) => isWanted(name))) {
    const tenants = await runScenario(plan, scenario);
    console.log([scenario.name, ...tenants.map(formatLine)].join("\n"));
    results.push({ scenario: scenario.name, tenants });
  }
  const launches = isWanted("launches") ? await launchCosts(plan) : {};
  for (const [where, cost] of Object.entries(launches))
    console.log(
      `launches, ${where}: ${cost.launch_call_us} µs a call, ${cost.launches_finished_per_second} finished a second`,
    );
  const date = `${new Date().toISOString().slice(0, 19)}Z`;
  await mkdir(dirname(json), { recursive: true });
  await writeFile(
    json,
    `${JSON.stringify({ ...machine, date, seconds, results, launches }, undefined, 2)}\n`,
  );
  console.log(`\n${json}`);
}

await runTool({ help, readOptions, run });
