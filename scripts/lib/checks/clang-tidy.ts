// SPDX-License-Identifier: Apache-2.0
// Static analysis of native code by clang-tidy, with the checks of native/.clang-tidy. Not a part of `npm run check`: a source
// takes some seconds, and all of them three quarters of an hour on one core.
import { availableParallelism } from "node:os";
import { find, must, run, ScriptError } from "../command.ts";
import { step } from "../steps.ts";
import { trackedFiles } from "./tree.ts";

// Other versions have other checks.
const tool = "clang-tidy-14";

/** As in native/CMakeLists.txt: include paths begin at native/. */
const flags = ["-std=c++20", "-Inative", "-I/usr/local/cuda/include"];

const isSource = (path: string): boolean => /^native\/.*\.cpp$/.test(path) && !path.includes("/gen/");

/** The C++ sources that differ from a revision, committed or not. A change in a header selects no source. */
export async function sourcesSince(revision: string): Promise<string[]> {
  const base = (await must("git", ["merge-base", revision, "HEAD"])).trim();
  const changed = await must("git", ["diff", "--name-only", "--diff-filter=d", base]);
  return changed.split("\n").filter(isSource);
}

/** All C++ sources below a folder, or a single file. */
export async function sourcesBelow(path: string): Promise<string[]> {
  const prefix = path.endsWith("/") ? path : `${path}/`;
  const sources = (await trackedFiles()).filter(
    (each) => isSource(each) && (each === path || each.startsWith(prefix)),
  );
  if (sources.length === 0) throw new ScriptError(`${path}: there are no C++ sources`);
  return sources;
}

/** Analyses sources, several at a time. Throws ScriptError with the findings. */
export async function tidy(sources: readonly string[]): Promise<void> {
  if ((await find(tool)) === undefined)
    throw new ScriptError(`${tool} is missing: install Debian's ${tool}.`);
  const waiting = [...sources];
  const findings: string[] = [];
  const work = async (): Promise<void> => {
    for (let source = waiting.shift(); source !== undefined; source = waiting.shift()) {
      const { status, output } = await run(tool, ["--quiet", source, "--", ...flags]);
      if (status !== 0) findings.push(output.replaceAll(/^\d+ warnings?.*\n?/gm, "").trim());
    }
  };
  await step(`${tool}, ${sources.length} sources`, async () => {
    await Promise.all(Array.from({ length: availableParallelism() }, work));
  });
  if (findings.length > 0) throw new ScriptError(findings.join("\n"));
}
