// SPDX-License-Identifier: Apache-2.0

// npm run bench:takeovers [-- options]: kills controllers, their database and agents under load, and reports
// lost changes and how fast the pool recovered. See --help.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { loadavg } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { runTool, toCount, UsageError } from "@millpond/cli";
import { runCrashRounds } from "@millpond/controller/testing/crash-rounds";
import { describeHost } from "./results/machine.ts";
import { RealNode } from "./pool/real-node.ts";
import { quantile } from "./results/samples.ts";
import { takeTemporaryFolder } from "./pool/temporary-folder.ts";

const help = `usage: npm run bench:takeovers -- [options]

  --seeds N      pools, one after the other, each with its seed and a database of its own; default: 8
  --first N      the first seed; default: 1
  --rounds N     faults in each; default: 25
  --controllers N  of each pool; their clocks are hours apart, except where programs run; default: 3
  --programs N    in every Nth pool programs run, on a node whose agent and workers are processes; its agent is killed,
                  too. 0: in none; default: 2
  --keep DIR     where the outcome of each seed is kept, and is found again by who goes on;
                 default: build/takeovers
  --json FILE    where the result goes; default: build/takeovers-result.json
  --save NAME    also writes bench/results/NAME.json, which is committed

Needs PostgreSQL 15 or later (Debian: postgresql), and for programs what npm run build makes. Ends with status 1 where
anything was lost or granted twice, or a program noticed. Whatever ends it, nothing of it is left.
`;

const root = join(import.meta.dirname, "..", "..");

interface Options {
  readonly seeds: readonly number[];
  readonly rounds: number;
  readonly controllers: number;
  /** Every n-th pool runs programs; 0: none. */
  readonly programs: number;
  readonly keep: string;
  readonly files: readonly string[];
}

/** The outcome of one pool. */
interface Outcome {
  readonly seed: number;
  readonly rounds: readonly { readonly fault: string; readonly seconds: number }[];
  readonly broken: readonly string[];
  readonly terms: number;
  readonly acknowledged: number;
  readonly grants: number;
  readonly deeds: Readonly<Record<string, number>>;
  /** Programs that ended as expected; undefined: there were none. */
  readonly programs?: number;
  /** Load average, before and after. */
  readonly load: readonly number[];
}

async function readKept(path: string, rounds: number, isReal: boolean): Promise<Outcome | undefined> {
  try {
    const kept = JSON.parse(await readFile(path, "utf8")) as Outcome;
    return kept.rounds.length === rounds && (kept.programs !== undefined) === isReal ? kept : undefined;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

async function runSeed(seed: number, options: Options): Promise<Outcome> {
  const path = join(options.keep, `${seed}.json`);
  const isReal = options.programs > 0 && seed % options.programs === 0;
  const kept = await readKept(path, options.rounds, isReal);
  if (kept !== undefined) return kept;
  const before = loadavg()[0] ?? 0;
  // A real agent refuses tickets that have expired according to its own clock.
  const apartSeconds = isReal ? 0 : 3600;
  const clocks = Array.from(
    { length: options.controllers },
    (_, index) => apartSeconds * index * (-1) ** index,
  );
  const { rounds, broken, terms, programs, ...rest } = await runCrashRounds({
    seed,
    rounds: options.rounds,
    clocks,
    ...(isReal && { makeHost: (site) => RealNode.start(site) }),
    onRound: ({ fault, seconds }) => console.log(`seed ${seed}: ${fault}, on after ${seconds.toFixed(2)} s`),
  });
  const outcome: Outcome = {
    seed,
    rounds: rounds.map(({ fault, seconds }) => ({ fault, seconds: rounded(seconds) })),
    broken,
    terms: Number(terms.at(-1) ?? 0n),
    ...rest,
    deeds: { ...rest.deeds },
    ...(isReal && { programs }),
    load: [rounded(before), rounded(loadavg()[0] ?? 0)],
  };
  await writeWhole(path, outcome);
  return outcome;
}

function rounded(value: number): number {
  return Number(value.toPrecision(4));
}

function spread(samples: readonly number[]) {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number): number => rounded(quantile(sorted, share));
  return {
    times: sorted.length,
    seconds: { least: at(0), p50: at(0.5), p90: at(0.9), p99: at(0.99), most: at(1) },
  };
}

function sumUp(outcomes: readonly Outcome[], { rounds, controllers }: Options) {
  const faultsOf = (its: readonly Outcome[]) => {
    const ofFault = Map.groupBy(
      its.flatMap((outcome) => outcome.rounds),
      ({ fault }) => fault,
    );
    return Object.fromEntries(
      [...ofFault].map(([fault, all]) => [fault, spread(all.map(({ seconds }) => seconds))]),
    );
  };
  const isReal = ({ programs }: Outcome): boolean => programs !== undefined;
  const deeds: Record<string, number> = {};
  for (const outcome of outcomes)
    for (const [deed, times] of Object.entries(outcome.deeds)) deeds[deed] = (deeds[deed] ?? 0) + times;
  const sum = (of: (outcome: Outcome) => number): number =>
    outcomes.reduce((total, outcome) => total + of(outcome), 0);
  const loads = outcomes.flatMap(({ load }) => load);
  return {
    seeds: { first: outcomes[0]?.seed, count: outcomes.length },
    controllers,
    roundsOfEach: rounds,
    broken: outcomes.flatMap(({ seed, broken }) => broken.map((what) => `seed ${seed}, ${what}`)),
    acknowledged: sum(({ acknowledged }) => acknowledged),
    grants: sum(({ grants }) => grants),
    deeds,
    programs: sum(({ programs = 0 }) => programs),
    faults: faultsOf(outcomes.filter((each) => !isReal(each))),
    faultsBesidePrograms: faultsOf(outcomes.filter(isReal)),
    load: { least: Math.min(...loads), most: Math.max(...loads) },
  };
}

async function writeWhole(path: string, value: unknown): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, `${JSON.stringify(value, undefined, 2)}\n`);
}

/** Undefined if only help is requested. */
function readOptions(args: string[]): Options | undefined {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args,
    options: {
      seeds: text,
      first: text,
      rounds: text,
      controllers: text,
      programs: text,
      keep: text,
      json: text,
      save: text,
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help === true) return undefined;
  if (values.save !== undefined && !/^[a-z0-9][a-z0-9-]*$/.test(values.save))
    throw new UsageError(`--save: ${values.save} is no name of small letters, digits and dashes`);
  const first = toCount("first", values.first ?? "1", 0, 1_000_000);
  return {
    seeds: Array.from({ length: toCount("seeds", values.seeds ?? "8", 1, 1000) }, (_, n) => first + n),
    rounds: toCount("rounds", values.rounds ?? "25", 1, 1000),
    controllers: toCount("controllers", values.controllers ?? "3", 2, 9),
    programs: toCount("programs", values.programs ?? "2", 0, 1000),
    keep: values.keep ?? join(root, "build", "takeovers"),
    files: [
      values.json ?? join(root, "build", "takeovers-result.json"),
      ...(values.save === undefined ? [] : [join(root, "bench", "results", `${values.save}.json`)]),
    ],
  };
}

async function run(options: Options): Promise<void> {
  takeTemporaryFolder("millpond-takeovers");
  const machine = { ...describeHost(), date: new Date().toISOString().replace(/\.\d+/, "") };
  const outcomes: Outcome[] = [];
  for (const seed of options.seeds) outcomes.push(await runSeed(seed, options));
  const result = { ...machine, ...sumUp(outcomes, options) };
  for (const file of options.files) {
    await writeWhole(file, result);
    console.log(file);
  }
  const { faults, faultsBesidePrograms } = result;
  console.log(JSON.stringify({ faults, faultsBesidePrograms }, undefined, 2));
  if (result.broken.length > 0) {
    console.error(result.broken.join("\n"));
    process.exitCode = 1;
  }
}

await runTool({ help, readOptions, run });
