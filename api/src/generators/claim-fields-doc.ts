// SPDX-License-Identifier: Apache-2.0

// Generates docs/reference/claims.md and the list of variables that the client library passes on, from the table of claim
// fields. `node api/src/generators/claim-fields-doc.ts` writes both.

import { writeFileSync } from "node:fs";
import { claimFieldNames, claimFieldSpecs } from "../claim-fields.ts";

/** Path of the page. */
export const claimFieldsDocUrl: URL = new URL("../../../docs/reference/claims.md", import.meta.url);

/** Path of the client library's list. */
export const claimVariablesHeaderUrl: URL = new URL(
  "../../../native/client/attach/gen/claim_variables.h",
  import.meta.url,
);

/** Fields that the client library reads itself, for compatibility with versions before this table. */
const readByClient: ReadonlySet<string> = new Set(["gpus", "memory", "compute"]);

/** The text of the page. */
export function renderClaimFieldsDoc(): string {
  const rows = claimFieldNames.map((name) => {
    const { flags, env, description, choices, defaultText = "no" } = claimFieldSpecs[name];
    const shown =
      choices === undefined
        ? description
        : `${description}: ${choices.map((each) => `\`${each}\``).join(", ")}`;
    return `| \`${name}\` | \`${flags}\` | \`${env}\` | ${shown} | ${defaultText} |`;
  });
  return `<!-- Generated from api/src/claim-fields.ts by \`npm run generate -w api\`. Do not edit. -->

# Fields of a claim

Each field can be given in a claim file (\`millpond apply -f\`), as an option of \`millpond run\` and \`millpond env\`, and as
an environment variable of a program that makes its own claim. Members of a claim file are written as on the command
line, or as numbers, booleans, lists and maps.

| field | option | variable | meaning | default |
|---|---|---|---|---|
${rows.join("\n")}
`;
}

/** The text of the list. */
export function renderClaimVariablesHeader(): string {
  const names = claimFieldNames
    .filter((name) => !readByClient.has(name))
    .map((name) => `    "${claimFieldSpecs[name].env}",`);
  return `// SPDX-License-Identifier: Apache-2.0
// Generated from api/src/claim-fields.ts by \`npm run generate -w api\`. Do not edit.
#pragma once

namespace millpond::client {

/// Variables of a claim that the controller reads; the client passes them on as they are.
inline constexpr const char* kClaimVariables[] = {
${names.join("\n")}
};

}  // namespace millpond::client
`;
}

if (import.meta.main) {
  writeFileSync(claimFieldsDocUrl, renderClaimFieldsDoc());
  writeFileSync(claimVariablesHeaderUrl, renderClaimVariablesHeader());
}
