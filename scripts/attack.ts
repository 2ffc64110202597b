// SPDX-License-Identifier: Apache-2.0
// npm run attack [-- NAME|NUMBER…] [--preset release|asan]: builds what is needed and tries the attacks of lib/attacks.ts, each
// of which must be refused: hostile clients, hostile workers, hostile tenants and strangers, on software GPUs. Prints what each
// has tried and a table. Exits with status 1 when one succeeded, or tried nothing.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs, styleText } from "node:util";
import { type Attack, attacks } from "./lib/attacks.ts";
import { run, ScriptError, script } from "./lib/command.ts";
import { buildDriverForm } from "./build-conformance.ts";
import { buildNative, requireNativeTools } from "./lib/build/native-build.ts";
import { inRoot, type Preset } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

/** The result of one attempt. */
interface Try {
  readonly what: string;
  readonly outcome: "refused" | "succeeded" | "not tried";
}

/** Folder of each native program below build/native/PRESET. */
const places = {
  attack_tests: "worker",
  protocol_tests: "protocol",
  remoted_tests: ".",
  worker_tests: "worker",
} as const;

function toAttack(word: string): Attack {
  const attack = attacks.find(({ name, number }) => name === word || String(number) === word);
  if (attack !== undefined) return attack;
  throw new ScriptError(`no attack named ${word}; there are ${attacks.map(({ name }) => name).join(", ")}`);
}

function toPreset(name: string): Preset {
  // The thread sanitizer maps address ranges of its own, which belong to neither the worker nor the session.
  if (name === "release" || name === "asan") return name;
  throw new ScriptError(`--preset ${name}: attacks are built with release or asan`);
}

async function tryNative({ native }: Attack, preset: Preset): Promise<Try[]> {
  const tries: Try[] = [];
  for (const { program, file, only } of native) {
    const path = inRoot("build", "native", preset, places[program], program);
    for (const words of only ?? [undefined]) {
      const { status, output } = await run(path, words === undefined ? [file] : [file, words]);
      const cases = [...output.matchAll(/^· (.*)$/gm)].map(([, name = ""]) => name);
      for (const [i, what] of cases.entries()) {
        // A case that fails ends the program, so it is the last one in the output.
        const isLost = status !== 0 && i === cases.length - 1;
        tries.push({ what, outcome: isLost ? "succeeded" : "refused" });
      }
      if (cases.length === 0) tries.push({ what: `${file}: ${words ?? "all"}`, outcome: "not tried" });
      if (status !== 0) console.log(output.trimEnd());
    }
  }
  return tries;
}

/** The part of vitest's JSON report that is read here. */
interface Report {
  readonly testResults: readonly {
    readonly message: string;
    readonly assertionResults: readonly {
      readonly title: string;
      readonly status: string;
      readonly failureMessages: readonly string[];
    }[];
  }[];
}

async function tryScripts({ scripts }: Attack): Promise<Try[]> {
  const tries: Try[] = [];
  const folder = await mkdtemp(join(tmpdir(), "millpond-attack-"));
  try {
    for (const { file, only } of scripts) {
      const report = join(folder, "report.json");
      const options = ["--reporter=json", `--outputFile=${report}`];
      if (only !== undefined)
        options.push("-t", only.map((words) => words.replaceAll(/[^\w ,]/g, ".")).join("|"));
      const { output } = await run("vitest", ["run", `/${file}`, ...options]);
      const text = await readFile(report, "utf8").catch((cause: unknown) => {
        throw new ScriptError(`vitest has left no report of ${file}:\n${output}`, { cause });
      });
      const { testResults } = JSON.parse(text) as Report;
      const all = testResults.flatMap(({ assertionResults }) => assertionResults);
      const chosen = all.filter(({ title }) => only?.some((words) => title.includes(words)) ?? true);
      for (const { title, status, failureMessages } of chosen) {
        const outcomes = { passed: "refused", failed: "succeeded" } as const;
        const outcome = status === "passed" || status === "failed" ? outcomes[status] : "not tried";
        tries.push({ what: title, outcome });
        if (outcome === "succeeded") console.log(failureMessages.join("\n"));
      }
      if (chosen.length === 0) tries.push({ what: file, outcome: "not tried" });
      for (const { message } of testResults) if (message !== "" && all.length === 0) console.log(message);
      await rm(report);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
  return tries;
}

interface Outcome {
  readonly attack: Attack;
  readonly tries: readonly Try[];
}

const countOf = ({ tries }: Outcome, outcome: Try["outcome"]): number =>
  tries.filter((each) => each.outcome === outcome).length;
const isRefused = (outcome: Outcome): boolean =>
  countOf(outcome, "succeeded") === 0 && countOf(outcome, "refused") > 0;

function printTable(outcomes: readonly Outcome[]): void {
  console.log();
  for (const outcome of outcomes) {
    const { number, name, gain } = outcome.attack;
    const skipped = countOf(outcome, "not tried");
    const word = isRefused(outcome) ? styleText("green", "refused") : styleText("red", "NOT REFUSED");
    const rest = skipped === 0 ? "" : `, ${skipped} not tried here`;
    console.log(
      `${String(number).padStart(2)}  ${name.padEnd(22)}${word}  ${countOf(outcome, "refused")} tries${rest}: ${gain}`,
    );
  }
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: { preset: { type: "string", default: "release" } },
    });
    const preset = toPreset(values.preset);
    const wanted = positionals.length === 0 ? attacks : positionals.map(toAttack);
    // Tests in TypeScript run on the release build: a sanitizer has nothing to add.
    const chosen = preset === "release" ? wanted : wanted.filter(({ native }) => native.length > 0);
    const needsPool = preset === "release" && chosen.some(({ scripts }) => scripts.length > 0);
    const programs = new Set(chosen.flatMap(({ native }) => native.map(({ program }) => program)));
    await requireNativeTools();
    await step(`native parts, ${preset}`, (progress) =>
      buildNative(preset, progress, needsPool ? ["all"] : [...programs]),
    );
    // In one of them, sessions share memory under the user of their claim.
    if (needsPool) await step("conformance programs in C", buildDriverForm);
    const outcomes: Outcome[] = [];
    for (const attack of chosen) {
      console.log(`\nattack ${attack.number}, ${attack.name}: to ${attack.gain}`);
      const tries = await tryNative(attack, preset);
      if (preset === "release") tries.push(...(await tryScripts(attack)));
      for (const { what, outcome } of tries) console.log(`  ${outcome}: ${what}`);
      outcomes.push({ attack, tries });
    }
    printTable(outcomes);
    const won = outcomes.filter((outcome) => !isRefused(outcome));
    if (won.length > 0)
      throw new ScriptError(`not refused: ${won.map(({ attack }) => attack.name).join(", ")}`);
    console.log(`${outcomes.length} of ${attacks.length} attacks tried, all refused`);
  });
}
