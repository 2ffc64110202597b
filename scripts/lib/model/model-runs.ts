// SPDX-License-Identifier: Apache-2.0
// Runs of the model program (native/testing/model) over a transport, each in a fresh environment.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run, ScriptError } from "../command.ts";
import { nativeDir } from "../paths.ts";
import { ModelPlace, type Way } from "./model-place.ts";

const transports = ["direct", "shm", "tcp", "tls", "native"] as const;
/** What to build first. */
export const modelTargets: readonly string[] = ["model", "softgpu", "millpond-worker", "millpond_client"];
/** Programs that one process, and therefore one worker, runs. */
const programsOfProcess = 500;
/** Features of CUDA that the software GPU's own driver lacks and that Millpond provides. */
const notInSoftGpu = ["pool", "managed"];

interface Result {
  /** The last program that was started; undefined when there was none. */
  readonly program: number | undefined;
  readonly status: number;
  /** Output of the program and its worker. */
  readonly text: string;
}

export interface Failure extends Result {
  readonly program: number;
}

export interface Settings {
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

export const modelProgram = (): string => join(nativeDir("release"), "testing", "model", "model");

export function listOf(text: string): string[] {
  return text.split(",").filter((part) => part !== "");
}

export function toWays(transport: string, gate: string, cuts: boolean): Way[] {
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

export function titleOf(way: Way): string {
  return `${way.transport}${way.isGated ? ", gate on" : ""}${way.hasCuts ? ", links cut" : ""}`;
}

function withoutOf(way: Way, settings: Settings): string[] {
  // A machine with a driver may have one device.
  const isOnDriver = way.transport === "native" || settings.driver !== undefined;
  const missing = way.transport === "direct" ? notInSoftGpu : isOnDriver ? ["peer"] : [];
  return [...new Set([...settings.without, ...missing])];
}

export function argumentsOf(way: Way, settings: Settings, more: readonly string[]): string[] {
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
export async function runModel(way: Way, settings: Settings, more: readonly string[]): Promise<Result> {
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
export async function runAll(way: Way, settings: Settings): Promise<{ ran: number; failures: Failure[] }> {
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
