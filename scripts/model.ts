// SPDX-License-Identifier: Apache-2.0
// npm run model [-- --programs N] [--first N] [--seed S] [--seconds N] [--transport direct,shm,tcp,tls,native] [--gate off,on]
// [--cuts] [--chaos S] [--without FEATURE,…] [--failures N] [--patience SECONDS] [--driver LIB]: random CUDA programs against
// a sequential oracle (native/testing/model), on the software GPU itself (direct), through Millpond (shm, tcp, tls; the gate:
// half of each device) on the software GPU or a driver library, or on the driver of this machine (native). A program that
// differs, fails or hangs is shrunk and printed as CUDA C. --mutants all|BUG,…: whether the programs find bugs that were mended, when
// the mend is taken out of the source for the time. docs/model-test.md.
import { parseArgs } from "node:util";
import { run, ScriptError, script } from "./lib/command.ts";
import { buildNative, requireNativeTools } from "./lib/build/native-build.ts";
import type { Way } from "./lib/model/model-place.ts";
import {
  argumentsOf,
  listOf,
  modelProgram,
  modelTargets,
  runAll,
  runModel,
  titleOf,
  toWays,
  type Failure,
  type Settings,
} from "./lib/model/model-runs.ts";
import { tryMutants } from "./lib/model/mutants.ts";
import { shrink } from "./lib/model/shrink.ts";
import { step } from "./lib/steps.ts";

/** Longest search for a smaller program, in milliseconds. */
const shrinkMs = 120_000;
/** The number of runs of a candidate, because a failure that depends on timing may not recur immediately. */
const triesOfCandidate = 3;
/** Exit status of the program for a selection of ops that is not a valid program. */
const statusNoProgram = 77;

function toNumber(option: string, text: string, least: number): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < least)
    throw new ScriptError(`--${option} ${text}: wanted a whole number from ${least}`);
  return number;
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
        mutants: { type: "string" },
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
    const build = (title: string): Promise<void> =>
      step(title, (progress) => buildNative("release", progress, modelTargets));
    if (values.mutants !== undefined) {
      const bugs = values.mutants === "all" ? [] : listOf(values.mutants);
      console.log(await tryMutants({ ...settings, secondsOfWay, build }, bugs));
      return;
    }
    await build("model test");
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
