// SPDX-License-Identifier: Apache-2.0

// Parts of the commands that views show. Users copy them into a terminal, and an address of the console, which anyone can
// write, may contain any text in place of a name.

import { isNodeName, shellQuote } from "@millpond/api/browser";

/**
 * Returns a name, or `node/index` for a GPU; NAME for a text that is not a valid name, which the shell could interpret as an
 * option or a command.
 */
export function nameWord(name: string): string {
  return name.split("/").every(isNodeName) ? name : "NAME";
}

/**
 * Quotes a text for a POSIX shell if necessary. Control characters become blanks, because terminals interpret some as keys.
 */
export function shellWord(text: string): string {
  return shellQuote(text.replaceAll(/\p{Cc}+/gu, " "));
}
