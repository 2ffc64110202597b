// SPDX-License-Identifier: Apache-2.0

// npm run bench [-- options]: measures, prints a table, writes a result file. See --help.

import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { probeDriver } from "@millpond/agent";
import { runTool, toCount, UsageError } from "@millpond/cli";
import { divideCpus, ownCpus } from "./cpu-sets.ts";
import { describeMachine } from "./results/machine.ts";
import { type Effort, type Group, groups, measure } from "./measure.ts";
import { type Transport, transports } from "./results/metrics.ts";
import { findPrograms } from "./programs.ts";
import { formatTable, makeResult } from "./results/result.ts";
import { Samples } from "./results/samples.ts";

const help = `usage: npm run bench -- [options]

  --driver LIB        driver library to measure on; default: the software GPU
  --transports LIST   of ${transports.join(",")}; default: all
  --only LIST         of ${groups.join(",")}; default: all
  --passes N          how often every program is started anew; default: 5
  --rounds N          samples of a program in a pass; default: 40
  --delay US          TCP and TLS go through a relay that delays them by that, each way, as a network does; default: 0
  --share-cpus        client and worker use all processors; default: half of them each
  --quick             a glance: one pass, few rounds, small copies
  --json FILE         where the result goes; default: build/bench-result.json
  --save NAME         also writes bench/results/NAME.json, which is committed
`;

const full: Effort = { passes: 5, rounds: 40, sustainedSeconds: 0.5, copyBytes: 64 << 20 };
const quick: Effort = { passes: 1, rounds: 4, sustainedSeconds: 0.05, copyBytes: 4 << 20 };

/** The repository's root, or the unpacked archive's. */
const root = join(import.meta.dirname, "..", "..");

function toList<T extends string>(
  option: string,
  text: string | undefined,
  known: readonly T[],
): readonly T[] {
  if (text === undefined) return known;
  return text.split(",").map((name) => {
    const found = known.find((each) => each === name);
    if (found === undefined) throw new UsageError(`--${option}: ${name} is not one of ${known.join(", ")}`);
    return found;
  });
}

function toName(text: string | undefined): string | undefined {
  if (text !== undefined && !/^[a-z0-9][a-z0-9-]*$/.test(text))
    throw new UsageError(`--save: ${text} is no name of small letters, digits and dashes`);
  return text;
}

interface Options extends Effort {
  readonly driver: string | undefined;
  readonly transports: readonly Transport[];
  readonly groups: readonly Group[];
  readonly delayMicroseconds: number;
  readonly sharesCpus: boolean;
  readonly json: string;
  readonly save: string | undefined;
}

/** Undefined if only help is requested. */
function readOptions(args: string[]): Options | undefined {
  const { values } = parseArgs({
    args,
    options: {
      driver: { type: "string" },
      transports: { type: "string" },
      only: { type: "string" },
      passes: { type: "string" },
      rounds: { type: "string" },
      delay: { type: "string" },
      "share-cpus": { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      json: { type: "string" },
      save: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) return undefined;
  const effort = values.quick ? quick : full;
  return {
    ...effort,
    driver: values.driver,
    transports: toList("transports", values.transports, transports),
    groups: toList("only", values.only, groups),
    passes: toCount("passes", values.passes ?? `${effort.passes}`, 1, 100_000),
    rounds: toCount("rounds", values.rounds ?? `${effort.rounds}`, 1, 100_000),
    delayMicroseconds: toCount("delay", values.delay ?? "0", 0, 1_000_000),
    sharesCpus: values["share-cpus"],
    json: values.json ?? join(root, "build", "bench-result.json"),
    save: toName(values.save),
  };
}

async function run(options: Options): Promise<void> {
  const programs = findPrograms(process.env);
  const driver = options.driver ?? programs.softgpu;
  const probe = await probeDriver({ worker: programs.worker, driver, timeoutMs: 120_000 });
  const [device] = probe.devices;
  if (device === undefined) throw new Error(`${driver} has no device`);
  const cpus = options.sharesCpus
    ? { client: "", worker: "", relay: "" }
    : divideCpus(await ownCpus(), { hasRelay: options.delayMicroseconds > 0 });
  const machine = {
    ...describeMachine(probe, device),
    clientCpus: cpus.client,
    workerCpus: cpus.worker,
    delayMicroseconds: options.delayMicroseconds,
  };
  const samples = new Samples();
  const isTerminal = process.stderr.isTTY;
  await measure(
    {
      ...options,
      programs,
      driver,
      cpus,
      root,
      isSoft: device.kind === "softgpu",
      uuid: device.uuid,
      memoryBytes: device.memoryBytes,
      onStep: (text) => process.stderr.write(isTerminal ? `\r\u001b[K${text}` : `${text}\n`),
    },
    samples,
  );
  if (isTerminal) process.stderr.write("\r\u001b[K");

  const result = makeResult(machine, new Date(), samples);
  const { hardware, cpu, cores, load } = machine;
  console.log(`${hardware}, ${cpu}, ${cores} cores, load ${load} before; medians [p10 p90]\n`);
  console.log(formatTable(result));
  const files = [options.json];
  if (options.save !== undefined) files.push(join(root, "bench", "results", `${options.save}.json`));
  for (const file of files) {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, `${JSON.stringify(result, undefined, 2)}\n`);
    console.log(`\n${file}`);
  }
}

await runTool({ help, readOptions, run });
