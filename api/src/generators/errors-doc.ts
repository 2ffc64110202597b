// SPDX-License-Identifier: Apache-2.0

// Writes docs/reference/errors.md from the table of errors: `npm run generate -w api`.

import { writeFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import { errorTable } from "../errors.ts";

export const errorsDocUrl = new URL("../../../docs/reference/errors.md", import.meta.url);

/** The current text of the page. */
export function renderErrorsDoc(): string {
  const rows = Object.entries(errorTable).map(
    ([code, { connect, meaning, remedy }]) =>
      `### ${code}\n\n${meaning}\n\nRemedy: ${remedy}\n\nRPC code: \`${rpcName(connect)}\`.\n`,
  );
  return `<!-- Generated from api/src/errors.ts by \`npm run generate -w api\`. Do not edit. -->

# Errors

Every error message of Millpond is one line: what happened and why, what to do, and at the end, in brackets, one of the
codes below. A code never changes its meaning, so scripts may depend on it; the text before it may change.

Over the Connect protocol an error is \`{"code": "<RPC code>", "message": "<the line>", "details": […]}\`. Programs read the
code from the detail \`millpond.v1.ErrorInfo\` ([error.proto](../../api/proto/millpond/v1/error.proto)), which also has the remedy
and, where what happened is one of the [reasons](reasons.md), that as data; an error of an earlier release has the line only.

${rows.join("\n")}`;
}

function rpcName(code: Code): string {
  return (Code[code] ?? "Unknown").replace(/(?<=[a-z])(?=[A-Z])/g, "_").toLowerCase();
}

if (import.meta.main) {
  writeFileSync(errorsDocUrl, renderErrorsDoc());
}
