// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "./errors.ts";

const namePattern = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** Names of claims, queues and tenants are DNS labels (RFC 1123): 1 to 63 of `a-z0-9-`, no hyphen at either end. */
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

const longestNodeName = 63;

/**
 * The name of a node is that of its host or Kubernetes node: DNS labels separated by dots, at most 63 characters in total.
 */
export function isNodeName(text: string): boolean {
  return text.length <= longestNodeName && text.split(".").every(isName);
}

/**
 * Checks the name of a node.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseNodeName(text: string): string {
  if (!isNodeName(text)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the node name ${quote(text)} is not a host name of 1 to ${longestNodeName} lower-case letters, digits, hyphens and dots`,
    );
  }
  return text;
}
