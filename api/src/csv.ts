// SPDX-License-Identifier: Apache-2.0

/**
 * Returns a value as a field of a CSV file. A spreadsheet would run a text that begins like a formula, and users choose some
 * texts for others, so such a text gets a leading apostrophe. Numbers are written as they are.
 */
export function csvField(value: string | number | undefined): string {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
