// SPDX-License-Identifier: Apache-2.0

import {
  claimValueParsers,
  millpondError,
  parseFraction,
  parseNodeName,
  parseQuota,
  parseSize,
  quote,
} from "@millpond/api";
import type { OptionSpec, ValueType } from "../command-table/command-table.ts";
import type { AnyValue } from "./command-values.ts";
import { prefixError } from "./errors.ts";

const parsers: { readonly [T in Exclude<ValueType, "flag" | "choice">]: (text: string) => AnyValue } = {
  ...claimValueParsers,
  text: parseText,
  "node-name": parseNodeName,
  number: (text) => parseNumber(text, 0, 64),
  weight: (text) => parseNumber(text, 1, 10_000),
  lines: (text) => parseNumber(text, 0, 1_000_000),
  quota: parseQuota,
  size: parseSize,
  fraction: parseFraction,
};

/** `-n, --gpus <count>` → `--gpus`. */
export function longName(spec: OptionSpec): string {
  return /--[a-z-]+/.exec(spec.flags)?.[0] ?? spec.flags;
}

/**
 * Turns the parser's result into the values that a command gets: options that are not given are read from the environment,
 * and aliases are replaced by their options.
 *
 * @throws MILLPOND_E_INVALID naming the option or the variable
 */
export function readOptions(
  specs: Readonly<Record<string, OptionSpec>>,
  found: Readonly<Record<string, string | boolean | undefined>>,
  environment: NodeJS.ProcessEnv,
): Record<string, AnyValue> {
  const values: Record<string, AnyValue> = {};
  const sources: Record<string, string> = {};
  for (const [key, spec] of Object.entries(specs)) {
    const given = found[key];
    if (spec.type === "flag") {
      // As in commander, `--no-x` is true unless given.
      values[key] = given === undefined ? defaultFlag(spec, environment) : given === true;
      continue;
    }
    const fromEnvironment = spec.env === undefined ? undefined : environment[spec.env];
    const text = typeof given === "string" ? given : fromEnvironment === "" ? undefined : fromEnvironment;
    const source = typeof given === "string" ? longName(spec) : (spec.env ?? "");
    const target = spec.aliasOf ?? key;
    if (text === undefined) {
      values[target] ??= undefined;
      continue;
    }
    if (spec.aliasOf !== undefined && typeof found[target] === "string") {
      throw millpondError("MILLPOND_E_INVALID", `${sources[target]} and ${source} set the same option twice`);
    }
    values[target] = readValue(spec, text, source);
    sources[target] = source;
  }
  return values;
}

function defaultFlag(spec: OptionSpec, environment: NodeJS.ProcessEnv): boolean {
  const text = spec.env === undefined ? undefined : environment[spec.env];
  if (text === undefined || text === "") return spec.flags.includes("--no-");
  try {
    return claimValueParsers.flag(text);
  } catch (error) {
    throw prefixError(error, spec.env ?? "");
  }
}

function readValue(spec: OptionSpec, text: string, source: string): AnyValue {
  if (spec.type === "choice") return parseChoice(text, spec.choices ?? [], source);
  if (spec.type === "flag") throw new Error("a flag has no text");
  try {
    return parsers[spec.type](text);
  } catch (error) {
    throw prefixError(error, source);
  }
}

/** @throws MILLPOND_E_INVALID listing the choices */
export function parseChoice(text: string, choices: readonly string[], source: string): string {
  const isTaken = (choice: string): boolean =>
    choice.includes("=<") ? text.startsWith(choice.slice(0, choice.indexOf("<"))) : text === choice;
  if (choices.some(isTaken)) return text;
  throw millpondError("MILLPOND_E_INVALID", `${source}: ${quote(text)} is not one of ${choices.join(", ")}`);
}

function parseNumber(text: string, least: number, most: number): number {
  const number = /^\d{1,7}$/.test(text) ? Number(text) : -1;
  if (number < least || number > most) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is not a whole number from ${least} to ${most}`,
    );
  }
  return number;
}

function parseText(text: string): string {
  if (text === "") throw millpondError("MILLPOND_E_INVALID", "the value is empty");
  return text;
}
