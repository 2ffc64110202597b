// SPDX-License-Identifier: Apache-2.0

// Writes native/base/errors/gen/error_codes.h from the table of errors: `npm run generate -w api`.

import { writeFileSync } from "node:fs";
import { errorTable } from "../errors.ts";

export const errorsHeaderUrl = new URL("../../../native/base/errors/gen/error_codes.h", import.meta.url);

/** The current text of the header. */
export function renderErrorsHeader(): string {
  const constants = Object.entries(errorTable).map(
    ([code, { meaning, remedy }]) =>
      `inline constexpr ErrorCode ${constantName(code)}{\n    ${[code, meaning, remedy].map((text) => JSON.stringify(text)).join(",\n    ")}};`,
  );
  return `// SPDX-License-Identifier: Apache-2.0
// Generated from api/src/errors.ts by \`npm run generate -w api\`. Do not edit.
#pragma once

namespace millpond {

/// Every error that Millpond shows to users: its name, its meaning, and its remedy in one sentence.
struct ErrorCode {
  const char* name;
  const char* meaning;
  const char* remedy;
};

namespace codes {
${constants.join("\n")}
}  // namespace codes

}  // namespace millpond
`;
}

/** MILLPOND_E_NOT_FOUND is kNotFound. */
function constantName(code: string): string {
  const words = code.replace(/^MILLPOND_E_/, "").split("_");
  return `k${words.map((word) => word.charAt(0) + word.slice(1).toLowerCase()).join("")}`;
}

if (import.meta.main) {
  writeFileSync(errorsHeaderUrl, renderErrorsHeader());
}
