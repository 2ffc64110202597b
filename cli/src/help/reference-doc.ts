// SPDX-License-Identifier: Apache-2.0

// docs/reference/cli.md, generated from the command table. `node cli/src/help/reference-doc.ts` writes it.

import { writeFileSync } from "node:fs";
import { type CommandName, commandNames, commandSpecs } from "../command-table/command-table.ts";
import { describeOption, durationText, usageOf } from "./help.ts";

/** Path of the page. */
export const referenceDocUrl: URL = new URL("../../../docs/reference/cli.md", import.meta.url);

/** The page's text. */
export function renderReferenceDoc(): string {
  return `<!-- Generated from cli/src/command-table/command-table.ts by \`npm run generate -w cli\`. Do not edit. -->

# The command line

The value of an omitted option comes from its environment variable, then from the current context in
\`~/.config/millpond/config.json\` (\`MILLPOND_CONFIG\` names another file), then from the default. \`NO_COLOR\` turns colours
off. \`MILLPOND_DEBUG=1\` adds the origin of errors. ${durationText}

Exit status: 0 success; 1 \`doctor\` found a problem; 118 a wrong command line; 119 to 125 other errors, by their kind
([errors](errors.md#exit-statuses)). \`run\` exits with the program's status, with 128 plus the signal's number if a signal
killed it, with 126 if it cannot be executed and with 127 if it was not found.

${commandNames.map(renderCommand).join("\n")}`;
}

function renderCommand(name: CommandName): string {
  const spec = commandSpecs[name];
  const parts = [`## millpond ${name}`, `${spec.summary}.`, `\`\`\`\n${usageOf(name)}\n\`\`\``];
  if (spec.description !== undefined) parts.push(spec.description);
  const options = Object.values(spec.options);
  if (options.length > 0) {
    const rows = options.map((option) => `| \`${option.flags}\` | ${describeOption(option)} |`);
    parts.push(`| option | meaning |\n|---|---|\n${rows.join("\n")}`);
  }
  const examples = spec.examples.map(({ command, what }) => `# ${what}\n${command}`);
  if (examples.length > 0) parts.push(`\`\`\`sh\n${examples.join("\n\n")}\n\`\`\``);
  return `${parts.join("\n\n")}\n`;
}

if (import.meta.main) writeFileSync(referenceDocUrl, renderReferenceDoc());
