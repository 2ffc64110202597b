// SPDX-License-Identifier: Apache-2.0

import { connection, jsonOutput } from "./options.ts";
import type { CommandSpec } from "./spec.ts";

/** The command for the audit as a whole. */
export const auditCommands = {
  audit: {
    summary: "Verify that no audit record was changed or removed",
    description: `Each record carries a hash of itself and of the record before it. \`verify\` recomputes the hashes of all records, and exits with
status 1 if a record was changed, removed or inserted. It prints the newest record with its hash. Keep that line elsewhere and pass
its hash to \`--includes\` later: a chain that was rewritten as a whole does not include it. Needs a token of the role admin. To
read records: \`millpond get audit\`.`,
    examples: [
      { command: "millpond audit verify", what: "status 0: the chain is intact" },
      { command: "millpond audit verify --includes 6f0d…", what: "and includes the record with that hash" },
    ],
    arguments: [{ name: "action", description: "What to do", choices: ["verify"] }],
    options: {
      includes: {
        flags: "--includes <hash>",
        type: "text",
        description: "Hash of a record that must exist",
      },
      ...jsonOutput,
      ...connection,
    },
    group: "Operate",
  },
} as const satisfies Record<string, CommandSpec>;
