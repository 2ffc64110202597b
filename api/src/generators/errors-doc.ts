// SPDX-License-Identifier: Apache-2.0

// Writes docs/reference/errors.md from the table of errors: `npm run generate -w api`.

import { writeFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import { type ErrorCode, errorTable, exitStatuses, exitStatusOf, otherExitStatus } from "../errors.ts";

export const errorsDocUrl = new URL("../../../docs/reference/errors.md", import.meta.url);

/** The current text of the page. */
export function renderErrorsDoc(): string {
  const rows = Object.entries(errorTable).map(
    ([code, { connect, meaning, remedy }]) =>
      `### ${code}\n\n${meaning}\n\nRemedy: ${remedy}\n\nRPC code: \`${rpcName(connect)}\`. Exit status: ${exitStatusOf(errorCode(code))}.\n`,
  );
  const statuses = Object.entries(exitStatuses).map(
    ([status, codes]) => `| ${status} | ${codes.map((code) => `\`${code}\``).join(", ")} |`,
  );
  return `<!-- Generated from api/src/errors.ts by \`npm run generate -w api\`. Do not edit. -->

# Errors

Every error message of Millpond is one line. It has the event and its cause, the remedy, and at the end, in brackets, one of
the codes below. \`millpond\` prints these three parts on lines of their own. A code never changes its meaning, so scripts may depend
on it; the text before it may change.

Over the Connect protocol an error is \`{"code": "<RPC code>", "message": "<the line>", "details": […]}\`. Programs read the
code from the detail \`millpond.v1.ErrorInfo\` ([error.proto](../../api/proto/millpond/v1/error.proto)), which also has the remedy
and, for errors that are [reasons](reasons.md), the reason as data. Errors of earlier releases have only the line.

## Exit statuses

\`millpond\` exits with a status that depends on the kind of the error, so scripts need not parse the text. \`millpond run\` exits with the
status of its program once that runs, and with 75 when its vGPUs were preempted.

| status | errors |
|---|---|
${statuses.join("\n")}
| ${otherExitStatus} | any other |

## Codes

${rows.join("\n")}`;
}

function errorCode(text: string): ErrorCode {
  if (!Object.hasOwn(errorTable, text)) throw new Error(`${text} is not in the table`);
  return text as ErrorCode;
}

function rpcName(code: Code): string {
  return (Code[code] ?? "Unknown").replace(/(?<=[a-z])(?=[A-Z])/g, "_").toLowerCase();
}

if (import.meta.main) {
  writeFileSync(errorsDocUrl, renderErrorsDoc());
}
