// SPDX-License-Identifier: Apache-2.0
// node scripts/start.mjs prose [FOLDER] [--keep]: the share of prose against docs/style.md, by folder; the marked blocks of
// one folder; or, with --keep, records the present counts as upper bounds.
import { parseArgs } from "node:util";
import { script } from "./lib/command.ts";
import { keepProse, listProse, reportProse } from "./lib/checks/prose.ts";

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: { keep: { type: "boolean", default: false } },
    });
    const [folder] = positionals;
    if (values.keep) await keepProse();
    if (folder === undefined) await reportProse();
    else await listProse(folder);
  });
}
