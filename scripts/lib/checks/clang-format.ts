// SPDX-License-Identifier: Apache-2.0
// Layout of the native code, by native/.clang-format. Generated files are laid out by codegen.
import { find, must, run, ScriptError } from "../command.ts";
import { trackedFiles } from "./tree.ts";

// Other versions format differently.
const tool = "clang-format-14";

async function nativeSources(): Promise<string[]> {
  if ((await find(tool)) === undefined) {
    throw new ScriptError(
      `${tool} is missing: it checks the layout of native code. Install Debian's ${tool}.`,
    );
  }
  return (await trackedFiles()).filter(
    (path) => /^native\/.*\.(cpp|h|c)$/.test(path) && !path.includes("/gen/"),
  );
}

/** Throws ScriptError that names the wrongly formatted files. */
export async function checkNativeFormat(): Promise<void> {
  const { status, output } = await run(tool, ["--dry-run", "-Werror", ...(await nativeSources())]);
  if (status === 0) return;
  const files = new Set([...output.matchAll(/^(\S+?):\d+:\d+: error:/gm)].map(([, path = ""]) => path));
  throw new ScriptError(`npm run format would change:\n  ${[...files].join("\n  ")}`);
}

/** Rewrites the files in place. */
export async function formatNative(): Promise<void> {
  await must(tool, ["-i", ...(await nativeSources())]);
}
