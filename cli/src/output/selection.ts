// SPDX-License-Identifier: Apache-2.0

// Selects and sorts the objects of a list. All of it works on the JSON of `-o json`, whose members are stable.

import { millpondError, parseSize, quote } from "@millpond/api";

/** A member by its dotted path, `allocation.node`; undefined: there is none. */
export function memberOf(object: unknown, path: string): unknown {
  let value: unknown = object;
  for (const name of path.split(".")) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
  }
  return value;
}

/** A member as text, for comparisons and tables; null is the empty text. */
export function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export type Test = (object: unknown) => boolean;

/**
 * Reads a label selector: `zone=b`, `zone!=b`, `zone` (has the label), `!zone`, separated by commas.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseSelector(text: string): Test {
  const tests = text.split(",").map((term): Test => {
    const parts = /^(!?)([\w./-]+)(?:(!=|==?)([\w.-]*))?$/.exec(term.trim());
    const [, negation = "", key = "", operator, value = ""] = parts ?? [];
    if (parts === null || (negation !== "" && operator !== undefined)) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `--selector: ${quote(term)} is not of the form key=value, key!=value, key or !key`,
      );
    }
    return (object) => {
      const labels = memberOf(object, "labels");
      const has = typeof labels === "object" && labels !== null && Object.hasOwn(labels, key);
      if (operator === undefined) return has === (negation === "");
      return (has && Reflect.get(labels, key) === value) === (operator !== "!=");
    };
  });
  return (object) => tests.every((test) => test(object));
}

/** A condition on a member, with the member's path, so that a misspelt one can be reported. */
export interface Condition {
  readonly path: string;
  readonly test: Test;
}

/**
 * Reads conditions on members: `state=pending,priority>=10,memoryBytes<4Gi`, separated by commas.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseConditions(text: string): readonly Condition[] {
  return text.split(",").map((term) => {
    const [, path, operator = "", value = ""] = /^([\w.-]+)(!=|>=|<=|==?|>|<)(.*)$/.exec(term.trim()) ?? [];
    if (path === undefined) {
      throw millpondError(
        "MILLPOND_E_INVALID",
        `--where: ${quote(term)} is not a condition such as state=pending or priority>=10`,
      );
    }
    return { path, test: (object) => holds(memberOf(object, path), operator, value) };
  });
}

function holds(member: unknown, operator: string, value: string): boolean {
  if (operator === "!=") return !equals(member, value);
  if (operator === "=" || operator === "==") return equals(member, value);
  if (member === null || member === undefined) return false;
  const order = compare(member, typeof member === "number" ? numberOf(value) : value);
  switch (operator) {
    case ">":
      return order > 0;
    case "<":
      return order < 0;
    case ">=":
      return order >= 0;
    default:
      return order <= 0;
  }
}

/** Whether a member equals the value; for a list, whether one element does. */
function equals(member: unknown, value: string): boolean {
  if (Array.isArray(member)) return member.some((each) => equals(each, value));
  return typeof member === "number" ? member === numberOf(value) : textOf(member) === value;
}

/** @throws MILLPOND_E_INVALID for text that is neither a number nor a size */
function numberOf(text: string): number {
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : Number(parseSize(text));
}

function compare(a: unknown, b: unknown): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const [left, right] = [textOf(a), textOf(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/**
 * Compares objects by the member at a path, `-path` in descending order. Equal objects keep their order.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseOrder(text: string): {
  readonly path: string;
  compare: (a: unknown, b: unknown) => number;
} {
  const [, sign = "", path] = /^(-?)([A-Za-z][\w.-]*)$/.exec(text) ?? [];
  if (path === undefined) {
    throw millpondError("MILLPOND_E_INVALID", `--sort-by: ${quote(text)} is not a member such as createdAt`);
  }
  const direction = sign === "" ? 1 : -1;
  return { path, compare: (a, b) => direction * compare(memberOf(a, path), memberOf(b, path)) };
}

/** Members that tables show in columns with other names. */
const columnMembers: Readonly<Record<string, readonly string[]>> = {
  age: ["createdAt", "joinedAt", "startedAt", "time"],
  compute: ["computePercent", "allocatedComputePercent"],
  memory: ["memoryBytes"],
  node: ["allocation.node"],
  position: ["queuePosition"],
  sessions: ["openSessions"],
  status: ["state", "health"],
  used: ["usedMemoryBytes"],
};

/**
 * Refuses a path that objects of a kind do not have: otherwise a misspelt condition would look like an empty pool. Members of
 * labels may be absent.
 *
 * @param members an object with all members of the kind
 * @throws MILLPOND_E_INVALID
 */
export function requireMember(members: object, path: string, option: string): void {
  const [first = ""] = path.split(".");
  if (Object.hasOwn(members, first)) return;
  const near = columnMembers[first.toLowerCase()]?.find((member) =>
    Object.hasOwn(members, member.replace(/\..*/, "")),
  );
  throw millpondError(
    "MILLPOND_E_INVALID",
    `${option}: there is no member ${quote(first)}; there are ${Object.keys(members).join(", ")}`,
    near === undefined ? {} : { remedy: `The member of that column is ${near}.` },
  );
}
