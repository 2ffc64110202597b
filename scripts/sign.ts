// SPDX-License-Identifier: Apache-2.0
// npm run package:sign -- --key FILE: writes build/package/SHA256SUMS for the output of `npm run package` and
// `package:image`, and SHA256SUMS.sig beside it.
import { relative } from "node:path";
import { parseArgs } from "node:util";
import { ScriptError, script } from "./lib/command.ts";
import { inRoot, root } from "./lib/paths.ts";
import { checksumsName, signChecksums, writeChecksums } from "./supply/checksums.ts";

export async function main(args: string[]): Promise<void> {
  await script(async () => {
    const { key } = parseArgs({ args, options: { key: { type: "string" } } }).values;
    if (key === undefined) throw new ScriptError("--key FILE is missing: an Ed25519 key in PEM");
    const folder = inRoot("build", "package");
    const names = await writeChecksums(folder);
    await signChecksums(folder, key);
    console.log(`${relative(root, folder)}/${checksumsName}.sig signs ${names.join(", ")}`);
  });
}
