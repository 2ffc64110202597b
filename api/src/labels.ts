// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "./errors.ts";

const keyPattern = /^[A-Za-z0-9]([-A-Za-z0-9_./]{0,61}[A-Za-z0-9])?$/;
const valuePattern = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;
const maxLabels = 32;

/**
 * Checks labels: keys of 1 to 63 letters, digits and `-_./`, values of 0 to 63 letters, digits and `-_.`, both beginning
 * and ending with a letter or digit. At most 32.
 *
 * @throws MILLPOND_E_INVALID
 */
export function checkLabels(labels: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const entries = Object.entries(labels);
  if (entries.length > maxLabels) {
    throw millpondError("MILLPOND_E_INVALID", `${entries.length} labels are more than ${maxLabels}`);
  }
  for (const [key, value] of entries) {
    if (!keyPattern.test(key) || !valuePattern.test(value)) {
      throw millpondError("MILLPOND_E_INVALID", `${quote(`${key}=${value}`)} is not a label such as app=web`);
    }
  }
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * Reads `key=value,key=value`.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseLabels(text: string): Readonly<Record<string, string>> {
  const labels = new Map<string, string>();
  for (const part of text.split(",")) {
    const [key = "", value, ...more] = part.trim().split("=");
    if (value === undefined || more.length > 0 || labels.has(key)) {
      throw millpondError("MILLPOND_E_INVALID", `${quote(text)} are not labels such as app=web,team=a`);
    }
    labels.set(key, value);
  }
  return checkLabels(Object.fromEntries(labels));
}

/** Writes labels so that `parseLabels` reads them back. */
export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}
