// SPDX-License-Identifier: Apache-2.0
// npm run check [-- NAME…]: every check that needs no test run, as a table; all of them run even when one fails.
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { styleText } from "node:util";
import { checkClientLibrary } from "./lib/build/client-library.ts";
import { must, ScriptError, script } from "./lib/command.ts";
import { checkHardening } from "./lib/build/hardening.ts";
import { buildNative, requireNativeTools } from "./lib/build/native-build.ts";
import { inRoot, nativeDir, nativeFiles } from "./lib/paths.ts";
import { checkSupply } from "./supply/lock-file.ts";
import { checkNativeFormat } from "./lib/checks/clang-format.ts";
import { checkProse } from "./lib/checks/prose.ts";
import {
  checkClasses,
  checkImports,
  checkLicenceLines,
  checkLinks,
  checkNativeSources,
  checkPrebuilt,
  checkSizes,
} from "./lib/checks/tree.ts";

interface Check {
  name: string;
  what: string;
  /** Throws when the check fails. */
  run: () => Promise<unknown>;
}

let build: Promise<void> | undefined;

/** Builds what is shipped, once for all checks that need it: two builds in one folder would disturb each other. */
function buildParts(): Promise<void> {
  build ??= (async () => {
    await requireNativeTools();
    // Client and worker together: with different descriptions they would refuse each other in the next run.
    await buildNative("release", { note() {}, fraction() {} }, [
      "millpond_client",
      "millpond_nvml",
      "millpond_cupti13",
      "millpond_cupti12",
      "millpond-worker",
      "softgpu",
      "driver-bench",
      "share-bench",
      "transport-bench",
    ]);
  })();
  return build;
}

async function clientLibraries(): Promise<void> {
  await buildParts();
  const directory = join(nativeDir("release"), "client");
  await checkClientLibrary(join(directory, "libcuda.so.1"), "cu");
  await checkClientLibrary(join(directory, "libmillpond-tls.so"), "millpond_tls_2");
  await checkClientLibrary(join(directory, "libnvidia-ml.so.1"), "nvml");
  for (const release of [13, 12])
    await checkClientLibrary(join(directory, `libcupti.so.${release}`), "cupti", "InitializeInjectionNvtx");
}

async function hardening(): Promise<void> {
  await buildParts();
  const parts = [...nativeFiles, "bench/driver-bench", "bench/share-bench", "bench/transport-bench"];
  await checkHardening([
    ...parts.map((part) => ({ path: join(nativeDir("release"), part), role: "part" as const })),
    { path: inRoot("examples", "prebuilt", "millpond-examples"), role: "tenant" },
  ]);
}

const checks: Check[] = [
  {
    name: "types",
    what: "tsc; the console apart, as browsers have it",
    run: async () => {
      await must("tsc", ["--noEmit", "-p", "tsconfig.json"]);
      await must("tsc", ["--noEmit", "-p", inRoot("console", "tsconfig.json")]);
    },
  },
  {
    name: "lint",
    what: "oxlint, type-aware; layers, cycles of imports and includes, error codes, sizes",
    run: async () => {
      await checkImports();
      await checkNativeSources();
      await checkSizes();
      await checkClasses();
      await must("oxlint", ["--type-aware", "--deny-warnings"]);
    },
  },
  {
    name: "format",
    what: "biome format, clang-format",
    run: async () => {
      await must("biome", ["format", "--max-diagnostics=20"]);
      await checkNativeFormat();
    },
  },
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
    what: "buf lint, breaking, generate",
    run: () => must("vitest", ["run", "api/src/gen.test.ts"]),
  },
  { name: "supply", what: "a hash for every locked package", run: checkSupply },
  { name: "licence", what: "an SPDX line in every source file", run: checkLicenceLines },
  { name: "prose", what: "no more against docs/style.md than before", run: checkProse },
  { name: "links", what: "relative links in Markdown", run: checkLinks },
  { name: "prebuilt", what: "the checked-in example binary", run: checkPrebuilt },
  {
    name: "client-library",
    what: "needs and exports of client libraries",
    run: clientLibraries,
  },
  { name: "hardening", what: "how native parts are linked", run: hardening },
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
