// SPDX-License-Identifier: Apache-2.0

// Words of the commands that views show. Users copy them into a terminal, and an address of the console, which anyone can
// write, may have any text in the place of a name.

import { isNodeName, shellQuote } from "@millpond/api/browser";

/** Returns a name, or of a GPU `node/index`; NAME for a text that is not a valid name, which the shell could take as an option or a command. */
export function nameWord(name: string): string {
  return name.split("/").every(isNodeName) ? name : "NAME";
}

/** Quotes a text for a POSIX shell where necessary. Control characters become blanks: terminals take some as keys. */
export function shellWord(text: string): string {
  return shellQuote(text.replaceAll(/\p{Cc}+/gu, " "));
}
