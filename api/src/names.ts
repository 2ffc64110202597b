// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "./errors.ts";

const namePattern = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** Names of nodes and claims are DNS labels (RFC 1123): 1 to 63 of `a-z0-9-`, no hyphen at either end. */
export function isName(text: string): boolean {
  return namePattern.test(text);
}

/**
 * Checks a name.
 *
 * @param what What is named, for the message: "claim name".
 * @throws MILLPOND_E_INVALID
 */
export function parseName(text: string, what: string): string {
  if (!isName(text)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the ${what} ${quote(text)} is not 1 to 63 lower-case letters, digits and hyphens that begin and end with a letter or digit`,
    );
  }
  return text;
}
