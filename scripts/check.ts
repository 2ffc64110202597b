// SPDX-License-Identifier: Apache-2.0
// npm run check [-- NAME…]: every check that needs no test run, as a table; all of them run even when one fails.
import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { styleText } from "node:util";
import { checkClientLibrary } from "./lib/client-library.ts";
import { must, ScriptError, script } from "./lib/command.ts";
import { buildNative, requireNativeTools } from "./lib/native-build.ts";
import { inRoot, nativeDir } from "./lib/paths.ts";
import { checkLicenceLines, checkLinks, checkPrebuilt } from "./lib/tree.ts";

interface Check {
  name: string;
  what: string;
  /** Throws when the check fails. */
  run: () => Promise<unknown>;
}

async function clientLibraries(): Promise<void> {
  await requireNativeTools();
  // With its worker: two that were built from different descriptions refuse each other in whatever is run next.
  await buildNative("release", { note() {}, fraction() {} }, ["millpond_client", "millpond-worker"]);
  const directory = join(nativeDir("release"), "client");
  await checkClientLibrary(join(directory, "libcuda.so.1"), "cu");
  await checkClientLibrary(join(directory, "libmillpond-tls.so"), "millpond_tls_1");
  const nvml = join(directory, "libnvidia-ml.so.1");
  if (existsSync(nvml)) await checkClientLibrary(nvml, "nvml");
}

const checks: Check[] = [
  { name: "types", what: "tsc", run: () => must("tsc", ["--noEmit", "-p", "tsconfig.json"]) },
  {
    name: "lint",
    what: "oxlint, type-aware",
    run: () => must("oxlint", ["--type-aware", "--deny-warnings"]),
  },
  { name: "format", what: "biome format", run: () => must("biome", ["format", "--max-diagnostics=20"]) },
  { name: "dead-code", what: "knip", run: () => must("knip", ["--no-config-hints", "--no-progress"]) },
  {
    name: "cuda-header",
    what: "cuda/abi against a real cuda.h",
    run: () => must("vitest", ["run", "cuda/tools/capture.test.ts", "codegen/src/emit-types.test.ts"]),
  },
  {
    name: "generated-cuda",
    what: "codegen --check",
    run: () => must(process.execPath, [inRoot("codegen", "src", "main.ts"), "--check"]),
  },
  {
    name: "generated-api",
    what: "buf lint, buf generate",
    run: () => must("vitest", ["run", "api/src/gen.test.ts"]),
  },
  { name: "licence", what: "an SPDX line in every source file", run: checkLicenceLines },
  { name: "links", what: "relative links in Markdown", run: checkLinks },
  { name: "prebuilt", what: "the checked-in example binary", run: checkPrebuilt },
  {
    name: "client-library",
    what: "needs and exports of libcuda.so.1 and libmillpond-tls.so",
    run: clientLibraries,
  },
];

interface Outcome {
  check: Check;
  error: unknown;
  seconds: number;
}

async function runCheck(check: Check): Promise<Outcome> {
  const start = performance.now();
  let error: unknown;
  try {
    await check.run();
  } catch (caught) {
    error = caught;
  }
  const seconds = (performance.now() - start) / 1000;
  const mark = error === undefined ? styleText("green", "✓") : styleText("red", "✗");
  console.log(`${mark} ${check.name.padEnd(16)}${check.what.padEnd(40)}${seconds.toFixed(1).padStart(6)} s`);
  return { check, error, seconds };
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const unknown = args.find((name) => !checks.some((check) => check.name === name));
    if (unknown !== undefined) {
      throw new ScriptError(
        `no check named ${unknown}; there are ${checks.map((check) => check.name).join(", ")}`,
      );
    }
    const queue = args.length === 0 ? [...checks] : checks.filter((check) => args.includes(check.name));
    const outcomes: Outcome[] = [];
    const lane = async (): Promise<void> => {
      for (let check = queue.shift(); check; check = queue.shift()) outcomes.push(await runCheck(check));
    };
    await Promise.all(Array.from({ length: availableParallelism() }, lane));

    const failed = outcomes.filter((outcome) => outcome.error !== undefined);
    for (const { check, error } of failed) {
      const text =
        error instanceof ScriptError ? error.message : String(error instanceof Error ? error.stack : error);
      console.log(`\n${styleText("bold", check.name)}\n${text}`);
    }
    if (failed.length > 0) throw new ScriptError(`${failed.length} of ${outcomes.length} checks failed`);
    console.log(`all ${outcomes.length} checks passed`);
  });
}
