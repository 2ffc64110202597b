// SPDX-License-Identifier: Apache-2.0
// npm run conformance [-- options] [NAME…]: builds the conformance programs as needed and runs them; the options are those
// of conformance/src/main.ts. The first may be `--sanitizer asan` or `--sanitizer tsan`: then client, worker and software
// GPU are those of that build.
import { buildConformance } from "./build-conformance.ts";
import { find, must, run, ScriptError, script } from "./lib/command.ts";
import { buildNative, requireNativeTools } from "./lib/build/native-build.ts";
import { inRoot, nativeDir, toolEnvironment } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

/** Runtimes of the sanitizers, which programs from other builds must preload. */
const runtimes = { asan: "libasan.so", tsan: "libtsan.so" } as const;
type Sanitizer = keyof typeof runtimes;

/** Programs that fault on purpose must end as they would without the sanitizer. */
const faultOptions = "handle_segv=0:handle_sigbus=0";
const asanOptions = `detect_leaks=0:${faultOptions}`;
const tsanOptions = `${faultOptions}:suppressions=${inRoot("native", "testing", "tsan-suppressions.txt")}`;

/** Time limit of a program under a sanitizer, which slows everything down. */
const sanitizedTimeoutSeconds = 900;

function isSanitizer(name: string | undefined): name is Sanitizer {
  return name !== undefined && name in runtimes;
}

/** Builds client, worker and software GPU with the sanitizer, and returns the options to run them. */
async function prepareSanitizer(
  sanitizer: Sanitizer,
): Promise<{ readonly prefix: string[]; readonly options: string[]; readonly env: NodeJS.ProcessEnv }> {
  await requireNativeTools();
  for (const target of ["millpond-worker", "millpond_client", "softgpu"])
    await step(`${target}, ${sanitizer}`, (progress) => buildNative(sanitizer, progress, [target]));
  const runtime = (await must("g++", [`-print-file-name=${runtimes[sanitizer]}`])).trim();
  if (!runtime.startsWith("/")) throw new ScriptError(`g++ has no ${runtimes[sanitizer]}`);
  // The thread sanitizer needs a fixed memory layout.
  const prefix = sanitizer === "tsan" && (await find("setarch")) !== undefined ? ["setarch", "-R"] : [];
  return {
    prefix,
    options: ["--preload", runtime, "--timeout", String(sanitizedTimeoutSeconds)],
    env: {
      ...toolEnvironment(),
      MILLPOND_NATIVE_DIR: nativeDir(sanitizer),
      ASAN_OPTIONS: asanOptions,
      TSAN_OPTIONS: tsanOptions,
    },
  };
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const [first, name] = args;
    if (first === "--sanitizer" && !isSanitizer(name))
      throw new ScriptError(`--sanitizer: ${name ?? ""} is not one of ${Object.keys(runtimes).join(", ")}`);
    if (!args.includes("--help") && !args.includes("-h"))
      await step("conformance programs", buildConformance);
    const program = inRoot("conformance", "src", "main.ts");
    const { prefix, options, env } =
      first === "--sanitizer" && isSanitizer(name)
        ? await prepareSanitizer(name)
        : { prefix: [], options: [], env: toolEnvironment() };
    const rest = first === "--sanitizer" ? args.slice(2) : args;
    const [command = "", ...all] = [...prefix, process.execPath, program, ...options, ...rest];
    const { status } = await run(command, all, { stream: true, env });
    process.exitCode = status;
  });
}
