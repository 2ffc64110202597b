// SPDX-License-Identifier: Apache-2.0
// npm run model [-- --programs N] [--first N] [--seed S] [--seconds N] [--transport direct,shm,tcp,tls,native] [--gate off,on]
// [--cuts] [--chaos S] [--without FEATURE,…] [--failures N] [--patience SECONDS] [--driver LIB]: random CUDA programs against
// a sequential oracle (native/testing/model), on the software GPU itself (direct), through Millpond (shm, tcp, tls; the gate:
// half of each device) on the software GPU or a driver library, or on the driver of this machine (native). A program that
// differs, fails or hangs is shrunk and printed as CUDA C. docs/model-test.md.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { run, ScriptError, script } from "./lib/command.ts";
import { ModelPlace, type Way } from "./lib/model/model-place.ts";
import { buildNative, requireNativeTools } from "./lib/build/native-build.ts";
import { nativeDir } from "./lib/paths.ts";
import { shrink } from "./lib/model/shrink.ts";
import { step } from "./lib/steps.ts";

const transports = ["direct", "shm", "tcp", "tls", "native"] as const;
/** Programs for one process, and so for one worker. */
const programsOfProcess = 500;
/** Longest search for a smaller program, in milliseconds. */
const shrinkMs = 120_000;
/** Runs of a candidate, because a failure that depends on timing may not recur the first time. */
const triesOfCandidate = 3;
/** Features of CUDA that the software GPU's own driver lacks, and Millpond provides. */
const notInSoftGpu = ["pool", "managed"];
/** Exit status of the program for a selection of ops that is not a valid program. */
const statusNoProgram = 77;

interface Result {
  /** The last program that was started; undefined when there was none. */
  readonly program: number | undefined;
  readonly status: number;
  /** Output of the program and its worker. */
  readonly text: string;
}

interface Failure extends Result {
  readonly program: number;
}

interface Settings {
  readonly seed: number;
  readonly first: number;
  readonly programs: number;
  readonly failures: number;
  readonly patience: number;
  readonly chaos: number | undefined;
  /** The driver library of the workers; undefined: the software GPU's. */
  readonly driver: string | undefined;
  readonly without: readonly string[];
  /** When to stop, by performance.now(). */
  readonly endMs: number;
}

const modelProgram = (): string => join(nativeDir("release"), "testing", "model", "model");

function toNumber(option: string, text: string, least: number): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < least)
    throw new ScriptError(`--${option} ${text}: wanted a whole number from ${least}`);
  return number;
}

function listOf(text: string): string[] {
  return text.split(",").filter((part) => part !== "");
}

function toWays(transport: string, gate: string, cuts: boolean): Way[] {
  const ways: Way[] = [];
  for (const name of listOf(transport)) {
    const known = transports.find((each) => each === name);
    if (known === undefined) throw new ScriptError(`--transport ${name}: there are ${transports.join(", ")}`);
    for (const state of listOf(gate)) {
      if (state !== "on" && state !== "off") throw new ScriptError(`--gate ${state}: on, off or both`);
      const isRemote = known !== "direct" && known !== "native";
      // The gate exists only in a worker, and a link to cut only over TCP.
      if (!isRemote && state === "on") continue;
      const canCut = known === "tcp" || known === "tls";
      ways.push({ transport: known, isGated: state === "on", hasCuts: cuts && canCut });
    }
  }
  return ways;
}

function titleOf(way: Way): string {
  return `${way.transport}${way.isGated ? ", gate on" : ""}${way.hasCuts ? ", links cut" : ""}`;
}

function withoutOf(way: Way, settings: Settings): string[] {
  // A machine with a driver may have one device.
  const isOnDriver = way.transport === "native" || settings.driver !== undefined;
  const missing = way.transport === "direct" ? notInSoftGpu : isOnDriver ? ["peer"] : [];
  return [...new Set([...settings.without, ...missing])];
}

function argumentsOf(way: Way, settings: Settings, more: readonly string[]): string[] {
  const without = withoutOf(way, settings);
  return [
    "--seed",
    String(settings.seed),
    "--patience",
    String(settings.patience),
    ...(without.length > 0 ? ["--without", without.join(",")] : []),
    ...more,
  ];
}

/** Runs the model program in a fresh environment: device, worker and link. */
async function runModel(way: Way, settings: Settings, more: readonly string[]): Promise<Result> {
  const directory = await mkdtemp(join(tmpdir(), "millpond-model-"));
  try {
    await using place = await ModelPlace.open(way, directory, settings);
    const { status, output } = await run(modelProgram(), argumentsOf(way, settings, more), {
      env: place.environment,
    });
    const last = [...output.matchAll(/^program (\d+)$/gm)].at(-1)?.[1];
    const program = last === undefined ? undefined : Number(last);
    const said = output.replaceAll(/^program \d+$\n?/gm, "").trim();
    const worker = status === 0 ? "" : await place.said();
    return { program, status, text: [said, worker].filter((part) => part !== "").join("\n") };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Runs all programs on one way; returns how many ran, and the failures. */
async function runAll(way: Way, settings: Settings): Promise<{ ran: number; failures: Failure[] }> {
  const failures: Failure[] = [];
  const end = settings.first + settings.programs;
  let next = settings.first;
  while (next < end && failures.length < settings.failures && performance.now() < settings.endMs) {
    const seconds = Math.max(1, Math.ceil((settings.endMs - performance.now()) / 1000));
    const count = Math.min(programsOfProcess, end - next);
    const range = ["--first", String(next), "--programs", String(count), "--seconds", String(seconds)];
    const result = await runModel(way, settings, range);
    if (result.status === 2) throw new ScriptError(`the model cannot run, ${titleOf(way)}:\n${result.text}`);
    const { program } = result;
    if (program === undefined) {
      if (result.status === 0) break;
      throw new ScriptError(`no program began, ${titleOf(way)}, status ${result.status}:\n${result.text}`);
    }
    next = program + 1;
    if (result.status !== 0) failures.push({ ...result, program });
  }
  return { ran: next - settings.first, failures };
}

/** The smallest part of a failing program that was found to fail in the same way, as CUDA C. */
async function explain(way: Way, settings: Settings, failure: Failure): Promise<string> {
  const one = ["--first", String(failure.program), "--programs", "1"];
  const only = (ops: readonly number[]): string[] => [...one, "--only", ops.join(",")];
  const list = async (more: string[]): Promise<string> =>
    (await run(modelProgram(), argumentsOf(way, settings, [...more, "--describe"]))).output;
  const count = Number((await list(one)).split("\n", 1)[0]);
  const patient = { ...settings, patience: Math.min(settings.patience, 5) };
  let text = failure.text;
  const fails = async (ops: readonly number[]): Promise<boolean> => {
    const check = await run(modelProgram(), argumentsOf(way, settings, [...only(ops), "--check"]));
    if (check.status === statusNoProgram) return false;
    for (let i = 0; i < triesOfCandidate; i++) {
      const result = await runModel(way, patient, only(ops));
      if (result.status === 0) continue;
      if (result.status !== failure.status) return false;
      text = result.text;
      return true;
    }
    return false;
  };
  const smallest = await shrink([...Array(count).keys()], fails, performance.now() + shrinkMs);
  const source = (await list(only(smallest))).replace(/^\d+\n/, "");
  const again = [
    "--program",
    String(failure.program),
    "--transport",
    way.transport,
    "--seed",
    String(settings.seed),
  ];
  const parts = [
    `program ${failure.program} of seed ${settings.seed}, ${titleOf(way)}, ${smallest.length} of ${count} ops:`,
    source,
    text,
    `again: npm run model -- ${again.join(" ").replace("--program", "--programs 1 --first")}${way.isGated ? " --gate on" : ""}${
      settings.without.length > 0 ? ` --without ${settings.without.join(",")}` : ""
    }${settings.driver === undefined ? "" : ` --driver ${settings.driver}`}`,
  ];
  return parts.join("\n");
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values } = parseArgs({
      args,
      options: {
        programs: { type: "string", default: "1000" },
        first: { type: "string", default: "0" },
        seed: { type: "string", default: "1" },
        seconds: { type: "string", default: "3600" },
        transport: { type: "string", default: "shm,tcp,tls" },
        gate: { type: "string", default: "off,on" },
        cuts: { type: "boolean", default: false },
        chaos: { type: "string" },
        without: { type: "string", default: "" },
        failures: { type: "string", default: "3" },
        patience: { type: "string", default: "20" },
        driver: { type: "string" },
      },
    });
    const ways = toWays(values.transport, values.gate, values.cuts);
    const secondsOfWay = toNumber("seconds", values.seconds, 1) / ways.length;
    const settings = {
      seed: toNumber("seed", values.seed, 0),
      first: toNumber("first", values.first, 0),
      programs: toNumber("programs", values.programs, 1),
      failures: toNumber("failures", values.failures, 1),
      patience: toNumber("patience", values.patience, 1),
      chaos: values.chaos === undefined ? undefined : toNumber("chaos", values.chaos, 1),
      driver: values.driver,
      without: listOf(values.without),
    };
    await requireNativeTools();
    const targets = ["model", "softgpu", "millpond-worker", "millpond_client"];
    await step("model test", (progress) => buildNative("release", progress, targets));
    const complaints: string[] = [];
    for (const way of ways) {
      const endMs = performance.now() + secondsOfWay * 1000;
      const { ran, failures } = await runAll(way, { ...settings, endMs });
      console.log(`${titleOf(way)}: ${ran} programs, ${failures.length} failed`);
      for (const failure of failures) complaints.push(await explain(way, { ...settings, endMs }, failure));
    }
    if (complaints.length > 0) throw new ScriptError(complaints.join("\n\n"));
  });
}
