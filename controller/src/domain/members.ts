// SPDX-License-Identifier: Apache-2.0

// Values with members that later versions extend, as JSON: members with their default value are left out.

import { isDeepStrictEqual } from "node:util";
import { millpondError } from "@millpond/api";

/** Writes the members of `defaults` that differ from them. */
export function writeMembers<T extends object>(
  value: T,
  defaults: T,
  leftOut: readonly (keyof T)[] = [],
): string {
  const written: Record<string, unknown> = {};
  for (const key of Object.keys(defaults) as (keyof T & string)[]) {
    if (!leftOut.includes(key) && !isDeepStrictEqual(value[key], defaults[key])) {
      const member: unknown = value[key];
      // All sizes are below 2^53.
      written[key] = typeof member === "bigint" ? Number(member) : member;
    }
  }
  return JSON.stringify(written);
}

/**
 * Reads the output of `writeMembers`. Unknown members are ignored: the schema's version says whether they matter.
 *
 * @throws MILLPOND_E_STATE_BROKEN when a member has another type than its default
 */
export function readMembers<T extends object>(text: string, defaults: T): T {
  const found: unknown = JSON.parse(text);
  if (typeof found !== "object" || found === null) {
    throw broken(text);
  }
  const read: Record<string, unknown> = Object.fromEntries(Object.entries(defaults));
  for (const [key, value] of Object.entries(found)) {
    const byDefault: unknown = read[key];
    if (byDefault === undefined) {
      continue;
    }
    const member: unknown =
      typeof byDefault === "bigint" && Number.isSafeInteger(value) ? BigInt(value) : value;
    if (typeof member !== typeof byDefault || Array.isArray(member) !== Array.isArray(byDefault)) {
      throw broken(text);
    }
    read[key] = member;
  }
  return read as T;
}

function broken(text: string) {
  return millpondError("MILLPOND_E_STATE_BROKEN", `the state has members that cannot be read: ${text}`);
}
