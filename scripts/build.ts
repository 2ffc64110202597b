// SPDX-License-Identifier: Apache-2.0
// npm run build [-- --preset release|asan|tsan]: the native parts and, for the release preset, the console and the examples.
// All other TypeScript needs no build: Node runs it as it is.
import { parseArgs } from "node:util";
import { buildExamples } from "./build-examples.ts";
import { ScriptError, script } from "./lib/command.ts";
import { buildConsole } from "./lib/build/console-build.ts";
import { buildNative, requireNativeTools } from "./lib/build/native-build.ts";
import { findNvcc } from "./lib/build/nvcc.ts";
import { type Preset, presets } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

function toPreset(name: string): Preset {
  const preset = presets.find((known) => known === name);
  if (preset === undefined) throw new ScriptError(`no preset named ${name}; there are ${presets.join(", ")}`);
  return preset;
}

/** Builds one preset, and with the release preset console and examples, and reports each step. */
export async function build(preset: Preset): Promise<void> {
  await requireNativeTools();
  await step(`native parts, ${preset}`, (progress) => buildNative(preset, progress));
  if (preset !== "release") return;
  await step("console", buildConsole);
  const how =
    (await findNvcc()) === undefined ? "no nvcc here: the checked-in binary" : "from source by nvcc";
  await step(`examples, ${how}`, buildExamples);
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values } = parseArgs({
      args,
      options: { preset: { type: "string", multiple: true, default: ["release"] } },
    });
    for (const preset of values.preset.map(toPreset)) await build(preset);
  });
}
