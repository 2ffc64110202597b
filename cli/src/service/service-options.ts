// SPDX-License-Identifier: Apache-2.0

// Options of the services: from the command line, the environment and a file, in this order.

import { existsSync, readFileSync } from "node:fs";
import { millpondError, quote, scalarText } from "@millpond/api";
import { parseDocument } from "yaml";
import { commandSpecs, type OptionSpec } from "../command-table/command-table.ts";
import type { AnyValue } from "../command-line/command-values.ts";
import { prefixError } from "../command-line/errors.ts";
import { longName, readOptions } from "../command-line/option-values.ts";

export type ServiceName = "controller" | "agent";

/** Directory of the services' configuration in packages. */
export const configDirectory = "/etc/millpond";

/** Options of a service as written, by key. */
export type ServiceTexts = Readonly<Record<string, string>>;

/** Options that cannot be in the file, because they name the file. */
const ownOptions: ReadonlySet<string> = new Set(["config"]);

export function configPath(service: ServiceName): string {
  return `${configDirectory}/${service}.yaml`;
}

/**
 * Adds options from the file that are neither on the command line nor in the environment.
 *
 * @param found the options that the command-line parser found
 * @returns texts and flags as if all options had been on the command line
 * @throws MILLPOND_E_INVALID naming the file and the member
 */
export function withFile(
  service: ServiceName,
  found: Readonly<Record<string, string | boolean | undefined>>,
  environment: NodeJS.ProcessEnv,
): Record<string, string | boolean | undefined> {
  const asked = found["config"] ?? environment["MILLPOND_SERVICE_CONFIG"];
  const path = typeof asked === "string" && asked !== "" ? asked : configPath(service);
  const isUsual = path === configPath(service);
  if (path === "none" || (isUsual && !existsSync(path))) return { ...found };
  const filled: Record<string, string | boolean | undefined> = { ...found };
  for (const [key, text] of Object.entries(readServiceFile(service, path))) {
    const spec = optionsOf(service)[key];
    const fromEnvironment = spec?.env === undefined ? "" : (environment[spec.env] ?? "");
    if (filled[key] !== undefined || fromEnvironment !== "") continue;
    filled[key] = spec?.type === "flag" ? text === "true" : text;
  }
  return filled;
}

/**
 * Reads and checks the file of a service.
 *
 * @throws MILLPOND_E_INVALID naming the file and the member
 */
export function readServiceFile(service: ServiceName, path: string): ServiceTexts {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw millpondError(
      "MILLPOND_E_INVALID",
      `the configuration file ${quote(path)} cannot be read: ${why}`,
      { cause },
    );
  }
  const document = parseDocument(text);
  const [problem] = document.errors;
  if (problem !== undefined) {
    throw invalid(path, problem.message.split("\n")[0]?.replace(/:$/, "") ?? "it is not YAML");
  }
  const value: unknown = document.toJS() ?? {};
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw invalid(path, "it is not a map of options, such as `listen: 0.0.0.0:7170`");
  }
  const texts: Record<string, string> = {};
  for (const [key, member] of Object.entries(value)) {
    texts[key] = readMember(service, key, member, path);
  }
  return texts;
}

function readMember(service: ServiceName, key: string, value: unknown, path: string): string {
  const specs = optionsOf(service);
  const spec = specs[key];
  if (spec === undefined || ownOptions.has(key)) {
    const known = Object.keys(specs).filter((each) => !ownOptions.has(each));
    const near = known.find((each) => each.toLowerCase() === key.replaceAll(/[-_]/g, "").toLowerCase());
    throw invalid(path, `${quote(key)} is not an option of millpond ${service}`, {
      remedy: near === undefined ? `There are ${known.join(", ")}.` : `Did you mean ${near}?`,
    });
  }
  const text = about(`${path}: ${key}`, () => memberText(spec, value));
  // The value is parsed here, so that the error message names the file.
  const found = { [key]: spec.type === "flag" ? text === "true" : text };
  about(path, () => readOptions({ [key]: spec }, found, {}));
  return text;
}

/** Adds the subject to the message of an error. */
function about<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw prefixError(error, what);
  }
}

function memberText(spec: OptionSpec, value: unknown): string {
  if (spec.type === "flag") {
    if (typeof value === "boolean") return String(value);
    throw millpondError("MILLPOND_E_INVALID", "the value is neither true nor false");
  }
  if (spec.type === "labels" && typeof value === "object" && value !== null && !Array.isArray(value)) {
    return Object.entries(value)
      .map(([name, each]) => `${name}=${scalarText(each)}`)
      .join(",");
  }
  if (Array.isArray(value)) return value.map((each) => scalarText(each)).join(",");
  return scalarText(value);
}

function optionsOf(service: ServiceName): Readonly<Record<string, OptionSpec>> {
  return commandSpecs[service].options;
}

/**
 * Returns the command line for a service's own program, whose options have the same names.
 *
 * @param values the options' values
 */
export function toArguments(service: ServiceName, values: Readonly<Record<string, AnyValue>>): string[] {
  return Object.entries(optionsOf(service)).flatMap(([key, spec]) => {
    const value = values[key];
    if (ownOptions.has(key) || value === undefined || value === false) return [];
    if (value === true) return [longName(spec)];
    return [`${longName(spec)}=${typeof value === "object" ? objectText(value) : String(value)}`];
  });
}

/** Lists and labels; services have no options of other kinds. */
function objectText(value: object): string {
  return Array.isArray(value)
    ? value.join(",")
    : Object.entries(value)
        .map(([name, each]) => `${name}=${String(each)}`)
        .join(",");
}

function invalid(path: string, what: string, more: { readonly remedy?: string } = {}) {
  return millpondError("MILLPOND_E_INVALID", `${path}: ${what}`, {
    remedy: more.remedy ?? "Correct the file; `millpond config check` reads it again.",
  });
}
