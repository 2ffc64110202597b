// SPDX-License-Identifier: Apache-2.0
// npm run tidy [-- FOLDER|FILE…]: clang-tidy on C++ sources: those named, or those that differ from the branch main.
import { parseArgs } from "node:util";
import { sourcesBelow, sourcesSince, tidy } from "./lib/checks/clang-tidy.ts";
import { script } from "./lib/command.ts";

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { positionals } = parseArgs({ args, allowPositionals: true });
    const named = await Promise.all(positionals.map(sourcesBelow));
    const sources = positionals.length > 0 ? [...new Set(named.flat())] : await sourcesSince("main");
    if (sources.length === 0) console.log("no C++ source differs from main");
    else await tidy(sources);
  });
}
