// SPDX-License-Identifier: Apache-2.0
// npm run conformance [-- options] [NAME…]: brings the conformance programs up to date and runs them; the options are
// those of conformance/src/main.ts.
import { buildConformance } from "./build-conformance.ts";
import { run, script } from "./lib/command.ts";
import { inRoot } from "./lib/paths.ts";
import { step } from "./lib/steps.ts";

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    if (!args.includes("--help") && !args.includes("-h"))
      await step("conformance programs", buildConformance);
    const program = inRoot("conformance", "src", "main.ts");
    const { status } = await run(process.execPath, [program, ...args], { stream: true });
    process.exitCode = status;
  });
}
