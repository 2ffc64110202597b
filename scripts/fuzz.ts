// SPDX-License-Identifier: Apache-2.0
// npm run fuzz [-- TARGET…] [--seconds N] [--seed N] [--keep]: builds the fuzz targets with clang and libFuzzer and runs
// them concurrently, each from its checked-in corpus. --seed repeats an earlier run (except for thread timing); --keep adds
// the inputs with new coverage to that corpus.
import { mkdir, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { run, ScriptError, script } from "./lib/command.ts";
import { buildNative, requireNativeTools } from "./lib/build/native-build.ts";
import { inRoot, nativeDir, toolEnvironment } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

interface Target {
  readonly name: string;
  readonly program: string;
  /** The checked-in corpus. */
  readonly corpus: string;
  /** Longest input, in bytes. */
  readonly maxLength: number;
}

const targets: readonly Target[] = [
  {
    name: "session",
    program: join("worker", "fuzz_session"),
    corpus: inRoot("native", "worker", "corpus", "session"),
    maxLength: 16_384,
  },
  {
    name: "module",
    program: join("softgpu", "fuzz_module"),
    corpus: inRoot("native", "softgpu", "corpus", "module"),
    maxLength: 16_384,
  },
  {
    name: "replies",
    program: join("protocol", "fuzz_replies"),
    corpus: inRoot("native", "protocol", "corpus", "replies"),
    maxLength: 8_192,
  },
  {
    name: "answers",
    program: join("client", "fuzz_answers"),
    corpus: inRoot("native", "client", "corpus", "answers"),
    maxLength: 8_192,
  },
];

const defaultSeconds = 60;
/** A slower input counts as a finding. */
const inputSeconds = 25;
const memoryMiB = 4096;

function toTarget(name: string): Target {
  const target = targets.find((known) => known.name === name);
  if (target === undefined)
    throw new ScriptError(`no fuzz target named ${name}; there are ${targets.map((t) => t.name).join(", ")}`);
  return target;
}

function toNumber(option: string, text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1)
    throw new ScriptError(`--${option} ${text}: wanted a whole number from 1`);
  return number;
}

async function requireFuzzer(): Promise<void> {
  await requireNativeTools();
  const probe = inRoot("build", "fuzz", "probe");
  await mkdir(inRoot("build", "fuzz"), { recursive: true });
  const source = inRoot("native", "testing", "empty_fuzz.cpp");
  const compiled = await run("clang++", ["-fsanitize=fuzzer", source, "-o", probe]).catch(() => undefined);
  if (compiled?.status === 0) return;
  throw new ScriptError(
    `fuzzing needs clang with libFuzzer, 14 or later:
  Debian, Ubuntu: apt-get install -y clang libclang-rt-14-dev (the number is that of clang --version)
  Fedora:         dnf install -y clang compiler-rt`,
  );
}

const programOf = (target: Target): string => join(nativeDir("fuzz"), target.program);
/** Directory of a target's new inputs, findings and log. */
const placeOf = (target: Target): string => inRoot("build", "fuzz", target.name);

function environment(): NodeJS.ProcessEnv {
  // Sessions end with their process, so memory that they leave is not a leak; excessive allocations are refused.
  const options = "detect_leaks=0:allocator_may_return_null=1";
  return { ...toolEnvironment(), ASAN_OPTIONS: options, UBSAN_OPTIONS: "print_stacktrace=1" };
}

function statistic(log: string, name: string): string {
  return new RegExp(`stat::${name}: +(\\d+)`).exec(log)?.[1] ?? "0";
}

/** Runs one target; returns a description of the finding, or undefined. */
async function fuzz(target: Target, seconds: number, seed: number | undefined): Promise<string | undefined> {
  const place = placeOf(target);
  const news = join(place, "corpus");
  const findings = join(place, "findings");
  await mkdir(news, { recursive: true });
  await mkdir(findings, { recursive: true });
  const args = [news, target.corpus, `-max_total_time=${seconds}`, `-max_len=${target.maxLength}`];
  args.push(`-timeout=${inputSeconds}`, `-rss_limit_mb=${memoryMiB}`, `-artifact_prefix=${findings}/`);
  args.push("-print_final_stats=1", "-verbosity=1");
  if (seed !== undefined) args.push(`-seed=${seed}`);
  // Much longer than libFuzzer needs to notice that its time is over after a slow input.
  const timeoutMs = (seconds + 10 * inputSeconds) * 1000;
  const { status, output } = await run(programOf(target), args, { env: environment(), timeoutMs });
  const covered = [...output.matchAll(/ cov: (\d+)/g)].at(-1)?.[1] ?? "0";
  const inputs = statistic(output, "number_of_executed_units");
  const speed = statistic(output, "average_exec_per_sec");
  console.log(
    `${target.name}: ${inputs} inputs, ${speed} a second, ${covered} edges covered, status ${status}`,
  );
  if (status === 0 && Number(inputs) > 0) return undefined;
  const tail = output.trimEnd().split("\n").slice(-60).join("\n");
  return `${target.name} ended with status ${status}:\n${tail}\nThe input is in ${findings}; to run it again:
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 ${programOf(target)} INPUT`;
}

/** Adds the inputs with new coverage to the checked-in corpus. */
async function keep(target: Target): Promise<void> {
  const before = (await readdir(target.corpus)).length;
  const args = ["-merge=1", `-max_len=${target.maxLength}`, target.corpus, join(placeOf(target), "corpus")];
  const { status, output } = await run(programOf(target), args, { env: environment() });
  if (status !== 0)
    throw new ScriptError(`merging the corpus of ${target.name} failed:\n${output.slice(-4000)}`);
  const files = await readdir(target.corpus);
  let bytes = 0;
  for (const file of files) bytes += (await readFile(join(target.corpus, file))).length;
  console.log(
    `${target.name}: ${files.length - before} inputs more, ${files.length} of ${bytes} bytes in all`,
  );
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        seconds: { type: "string", default: String(defaultSeconds) },
        seed: { type: "string" },
        keep: { type: "boolean", default: false },
      },
    });
    const seconds = toNumber("seconds", values.seconds);
    const seed = values.seed === undefined ? undefined : toNumber("seed", values.seed);
    const chosen = positionals.length > 0 ? positionals.map(toTarget) : targets;
    await requireFuzzer();
    await step("fuzz targets", (progress) => buildNative("fuzz", progress, ["fuzz"]));
    const found = await step(`fuzzing for ${seconds} s`, () =>
      Promise.all(chosen.map((target) => fuzz(target, seconds, seed))),
    );
    const complaints = found.filter((each) => each !== undefined);
    if (complaints.length > 0) throw new ScriptError(complaints.join("\n\n"));
    if (values.keep) for (const target of chosen) await keep(target);
  });
}
