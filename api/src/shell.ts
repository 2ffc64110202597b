// SPDX-License-Identifier: Apache-2.0

/** Quotes a text for a POSIX shell, if necessary. */
export function shellQuote(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
