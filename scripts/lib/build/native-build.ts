// SPDX-License-Identifier: Apache-2.0
// Configures and builds native/ by its CMake presets.
import { availableParallelism } from "node:os";
import { find, must, run, ScriptError } from "../command.ts";
import { inRoot, type Preset, root, toolEnvironment } from "../paths.ts";
import type { Progress } from "../steps.ts";

const nativeTools = ["cmake", "make", "g++", "cc", "strip"];

/** Throws a ScriptError that names every missing tool and how to install it. */
export async function requireNativeTools(): Promise<void> {
  const found = await Promise.all(nativeTools.map((tool) => find(tool)));
  const missing = nativeTools.filter((_, i) => found[i] === undefined);
  if (missing.length === 0) return;
  throw new ScriptError(
    `the native parts need ${missing.join(", ")}, which ${missing.length === 1 ? "is" : "are"} not in PATH.
  Debian, Ubuntu: apt-get install -y cmake make g++ libssl-dev libzstd-dev liblz4-dev
  Fedora:         dnf install -y cmake make gcc-c++ openssl-devel openssl-static libzstd-devel libzstd-static lz4-devel lz4-static`,
  );
}

/** Progress of a build by a line of make ("[ 42%] …") or ninja ("[3/10] …"); undefined for other lines. */
export function buildFraction(line: string): number | undefined {
  const percent = /^\[ *(\d+)%\]/.exec(line)?.[1];
  if (percent !== undefined) return Number(percent) / 100;
  const counted = /^\[(\d+)\/(\d+)\]/.exec(line);
  return counted ? Number(counted[1]) / Number(counted[2]) : undefined;
}

/**
 * The environment of cmake and its compilers. With ccache, if it is installed, a clone or a worktree compiles only sources that
 * no other has compiled. Paths below the root are cached as relative ones.
 */
async function buildEnvironment(): Promise<NodeJS.ProcessEnv> {
  const environment = toolEnvironment();
  if ((await find("ccache")) === undefined) return environment;
  return {
    CMAKE_C_COMPILER_LAUNCHER: "ccache",
    CMAKE_CXX_COMPILER_LAUNCHER: "ccache",
    CCACHE_BASEDIR: root,
    CCACHE_NOHASHDIR: "1",
    ...environment,
  };
}

/** Brings build/native/<preset> up to date: everything, or only some targets. */
export async function buildNative(
  preset: Preset,
  progress: Progress,
  targets: readonly string[] = ["all"],
): Promise<void> {
  const cwd = inRoot("native");
  const env = await buildEnvironment();
  await must("cmake", ["--preset", preset], { cwd, env });
  const jobs = String(availableParallelism());
  const { status, output } = await run(
    "cmake",
    ["--build", "--preset", preset, "--target", ...targets, "-j", jobs],
    {
      cwd,
      env,
      onLine(line) {
        const fraction = buildFraction(line);
        if (fraction === undefined) return;
        progress.fraction(fraction);
        progress.note(line.slice(line.indexOf("]") + 2).replace(/^Building \w+ object .*\.dir\//, ""));
      },
    },
  );
  if (status === 0) return;
  const complaints = output.split("\n").filter((line) => buildFraction(line) === undefined);
  throw new ScriptError(
    `the build of native/ (preset ${preset}) failed with status ${status}:\n${complaints.slice(0, 80).join("\n")}`,
  );
}
