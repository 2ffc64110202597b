// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";
import { textOf } from "./selection.ts";

/** A part of a template: text, or the steps of a path. */
type Piece = string | readonly Step[];

/** A member, an element, or every element. */
type Step = string | number;

/** The step to every element. */
const every = "*";

/**
 * Renders a JSONPath template as `kubectl -o jsonpath` does: text, and `{.items[*].name}` with members, `[0]`, `[-1]` and
 * `[*]`. Several results are separated by spaces. Filters, slices and `{range}` are refused.
 *
 * @throws MILLPOND_E_INVALID
 */
export function renderJsonPath(template: string, root: unknown): string {
  return parseTemplate(template)
    .map((piece) => (typeof piece === "string" ? piece : valuesAt(root, piece).map(textOf).join(" ")))
    .join("");
}

function parseTemplate(template: string): readonly Piece[] {
  const text = template.includes("{") ? template : `{${template}}`;
  const pieces: Piece[] = [];
  let rest = text;
  while (rest !== "") {
    const open = rest.indexOf("{");
    if (open !== 0) {
      pieces.push(open < 0 ? rest : rest.slice(0, open));
      rest = open < 0 ? "" : rest.slice(open);
      continue;
    }
    const close = rest.indexOf("}");
    if (close < 0) throw refused(template, "a { has no }");
    pieces.push(parsePiece(rest.slice(1, close), template));
    rest = rest.slice(close + 1);
  }
  return pieces;
}

function parsePiece(text: string, template: string): Piece {
  const [, literal] = /^"(.*)"$/.exec(text) ?? [];
  if (literal !== undefined) return literal.replaceAll("\\n", "\n").replaceAll("\\t", "\t");
  const steps: Step[] = [];
  let rest = text.replace(/^\$/, "");
  while (rest !== "" && rest !== ".") {
    const match = /^(?:\.([\w-]+)|\.?\[(?:(-?\d+)|(\*)|'([^']*)')\])/.exec(rest);
    if (match === null) throw refused(template, `${quote(rest)} is not .member, [0], [*] or ['member']`);
    const [whole, member, index, all, quoted] = match;
    steps.push(index === undefined ? (all ?? member ?? quoted ?? "") : Number(index));
    rest = rest.slice(whole.length);
  }
  return steps;
}

function refused(template: string, why: string) {
  return millpondError(
    "MILLPOND_E_INVALID",
    `--output: the path ${quote(template)} is not understood: ${why}`,
    {
      remedy: "Write a path such as {.items[*].name}; for more, use -o json with jq.",
    },
  );
}

function valuesAt(root: unknown, steps: readonly Step[]): readonly unknown[] {
  let values: readonly unknown[] = [root];
  for (const step of steps) values = values.flatMap((value) => childrenOf(value, step));
  return values;
}

function childrenOf(value: unknown, step: Step): readonly unknown[] {
  if (typeof value !== "object" || value === null) return [];
  if (step === every) return Object.values(value);
  if (typeof step === "number") {
    const isThere = Array.isArray(value) && step < value.length && step >= -value.length;
    return isThere ? [value.at(step)] : [];
  }
  return Object.hasOwn(value, step) ? [Reflect.get(value, step)] : [];
}
