// SPDX-License-Identifier: Apache-2.0

import { connection, jsonOutput } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** The command for the audit as a whole. */
export const auditCommands = {
  audit: {
    summary: "Check the audit: whether records were changed or removed",
    description: `Each record carries a hash of itself and of the record before it. \`verify\` reads all records and calculates the hashes
again: a record that was changed, removed or inserted ends the command with status 1. It prints the newest record with its hash.
Keep that line elsewhere and give it with \`--includes\` later: a chain that was rewritten as a whole does not have it. Needs a
token of the role admin. To read records: \`millpond get audit\`.`,
    examples: [
      { command: "millpond audit verify", what: "status 0: the chain is whole" },
      { command: "millpond audit verify --includes 6f0d…", what: "and has the record of that hash" },
    ],
    arguments: [{ name: "action", description: "What to do", choices: ["verify"] }],
    options: {
      includes: {
        flags: "--includes <hash>",
        type: "text",
        description: "Hash of a record that must be there",
      },
      ...jsonOutput,
      ...connection,
    },
    group: "Operate",
  },
} as const satisfies Record<string, CommandSpec>;
