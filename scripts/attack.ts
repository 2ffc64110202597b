// SPDX-License-Identifier: Apache-2.0
// npm run attack [-- NAME…] [--preset release|asan]: builds the attacks on a pool and runs them: hostile clients against a
// worker on the software GPU, each of which must be refused. Every attack prints what it tried. Exits with status 1 when one
// succeeded.
import { parseArgs } from "node:util";
import { run, ScriptError, script } from "./lib/command.ts";
import { buildNative, requireNativeTools } from "./lib/native-build.ts";
import { inRoot, type Preset } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

interface Attack {
  readonly name: string;
  /** The goal of the attack. */
  readonly gain: string;
  /** The file of attack_tests that contains it. */
  readonly file: string;
}

const attacks: readonly Attack[] = [
  {
    name: "addresses",
    gain: "reads or writes memory of its worker by naming its addresses",
    file: "addresses_test",
  },
  {
    name: "reply-ring",
    gain: "makes its worker write outside of shared memory by lying about what it has read",
    file: "reply_ring_test",
  },
  {
    name: "frames",
    gain: "has a command checked that is another one when it is done, by changing it in shared memory",
    file: "frames_test",
  },
  {
    name: "claim-limits",
    gain: "takes a node's memory by child graphs, half images, variables of modules and streams",
    file: "claim_limits_test",
  },
];

function toAttack(name: string): Attack {
  const attack = attacks.find((known) => known.name === name);
  if (attack === undefined)
    throw new ScriptError(`no attack named ${name}; there are ${attacks.map((a) => a.name).join(", ")}`);
  return attack;
}

function toPreset(name: string): Preset {
  // The sanitizer maps addresses of its own, which belong to neither the worker nor the session.
  if (name === "release" || name === "asan") return name;
  throw new ScriptError(`--preset ${name}: attacks are built with release or asan`);
}

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: { preset: { type: "string", default: "release" } },
    });
    const preset = toPreset(values.preset);
    const chosen = positionals.length === 0 ? attacks : positionals.map(toAttack);
    await requireNativeTools();
    await step(`native parts, ${preset}`, (progress) => buildNative(preset, progress, ["attack_tests"]));
    const program = inRoot("build", "native", preset, "worker", "attack_tests");
    const won: string[] = [];
    for (const { name, gain, file } of chosen) {
      console.log(`\nattack ${name}: ${gain}`);
      const { status } = await run(program, [file], { stream: true });
      if (status !== 0) won.push(name);
      else console.log(`attack ${name}: refused`);
    }
    if (won.length > 0) throw new ScriptError(`not refused: ${won.join(", ")}`);
    console.log(`\n${chosen.length} of ${attacks.length} attacks tried, all refused`);
  });
}
