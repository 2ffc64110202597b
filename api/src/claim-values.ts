// SPDX-License-Identifier: Apache-2.0

// The fields of a claim in their textual forms: parsed, checked, and converted to the message of the API.

import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ClaimField,
  type ClaimFieldName,
  claimFieldNames,
  claimFieldSpecs,
  type ClaimFieldType,
} from "./claim-fields.ts";
import { errorCodeOf, millpondError, quote } from "./errors.ts";
import { type ClaimSchema, Locality, NodeLoss, Placement, ServiceClass } from "./gen/millpond/v1/claim_pb.ts";
import { checkLabels, formatLabels, parseLabels } from "./labels.ts";
import { parseName } from "./names.ts";
import {
  formatMemory,
  formatPercent,
  type MemoryRequest,
  parseDuration,
  parseMemory,
  parsePercent,
} from "./units.ts";

/** The value of a field by its type. */
export interface ClaimValueOfType {
  readonly count: number;
  readonly integer: number;
  readonly members: number;
  readonly memory: MemoryRequest;
  readonly percent: number;
  readonly flag: boolean;
  readonly name: string;
  readonly list: readonly string[];
  readonly version: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly duration: number;
  readonly period: number;
  readonly choice: string;
}

type Fields = typeof import("./claim-fields.ts").claimFields;

/** The fields that are given. */
export type ClaimValues = {
  readonly [K in ClaimFieldName]?:
    | (Fields[K] extends { readonly choices: readonly (infer C)[] } ? C : ClaimValueOfType[Fields[K]["type"]])
    | undefined;
};

/** A parser for each type of value. Each throws MILLPOND_E_INVALID if the text is not a value of its type. */
export const claimValueParsers: {
  readonly [T in Exclude<ClaimFieldType, "choice">]: (text: string) => ClaimValueOfType[T];
} = {
  count: (text) => parseWhole(text, 1, 64, fractionRemedy(text)),
  integer: (text) => parseWhole(text, -1000, 1000),
  members: (text) => parseWhole(text, 2, 256),
  memory: parseMemory,
  percent: parsePercent,
  flag: parseFlag,
  name: (text) => parseName(text, "name"),
  list: parseList,
  version: parseVersion,
  labels: parseLabels,
  duration: parseDuration,
  period: parsePeriod,
};

/** The API's number of each choice of a claim, by the choice's name. */
export const claimChoices = {
  placement: {
    "least-fragmentation": Placement.LEAST_FRAGMENTATION,
    binpack: Placement.BINPACK,
    spread: Placement.SPREAD,
  },
  locality: {
    "prefer-local": Locality.PREFER_LOCAL,
    "local-only": Locality.LOCAL_ONLY,
    any: Locality.ANY,
  },
  serviceClass: {
    guaranteed: ServiceClass.GUARANTEED,
    burstable: ServiceClass.BURSTABLE,
    "best-effort": ServiceClass.BEST_EFFORT,
  },
  nodeLoss: { keep: NodeLoss.KEEP, requeue: NodeLoss.REQUEUE, fail: NodeLoss.FAIL },
} as const;

/**
 * Parses the text of a field.
 *
 * @throws MILLPOND_E_INVALID
 */
export function parseClaimField(name: ClaimFieldName, text: string): ClaimValues {
  const spec: ClaimField = claimFieldSpecs[name];
  return { [name]: spec.type === "choice" ? parseChoice(text, spec) : claimValueParsers[spec.type](text) };
}

/**
 * Parses fields from environment variables.
 *
 * @throws MILLPOND_E_INVALID naming the variable, also for an unknown one
 */
export function parseClaimVariables(variables: Readonly<Record<string, string>>): ClaimValues {
  let values: ClaimValues = {};
  for (const [variable, text] of Object.entries(variables)) {
    const name = claimFieldNames.find((each) => claimFieldSpecs[each].env === variable);
    if (name === undefined) {
      throw millpondError("MILLPOND_E_INVALID", `${quote(variable)} is not a variable of a claim`);
    }
    values = { ...values, ...about(variable, () => parseClaimField(name, text)) };
  }
  return values;
}

/**
 * Parses the members of a claim file: texts as on the command line, or numbers, booleans, lists and maps for fields of these
 * types.
 *
 * @throws MILLPOND_E_INVALID naming the member, also for an unknown one
 */
export function parseClaimMembers(members: Readonly<Record<string, unknown>>): ClaimValues {
  let values: ClaimValues = {};
  for (const [member, value] of Object.entries(members)) {
    const name = claimFieldNames.find((each) => each === member);
    if (name === undefined) {
      throw millpondError("MILLPOND_E_INVALID", `a claim has no member ${quote(member)}`, {
        remedy: `Its members are name, lease, ${claimFieldNames.join(", ")}.`,
      });
    }
    if (!isEmpty(name, value)) {
      values = { ...values, ...about(member, () => parseClaimField(name, memberText(name, value))) };
    }
  }
  return values;
}

/** The message of the API for these fields. */
export function toClaimMessage(values: ClaimValues): MessageInitShape<typeof ClaimSchema> {
  const { memory } = values;
  return {
    gpus: values.gpus ?? 1,
    memoryBytes: memory?.kind === "bytes" ? memory.bytes : 0n,
    memoryPercent: memory?.kind === "percent" ? memory.percent : 0,
    computePercent: values.compute ?? 0,
    lazy: values.lazy ?? false,
    lazyIdleSeconds: values.lazyIdle ?? 0,
    exclusive: values.exclusive ?? false,
    models: [...(values.model ?? [])],
    minComputeCapability: values.minCapability ?? "",
    pool: values.pool ?? "",
    tenant: values.tenant ?? "",
    queue: values.queue ?? "",
    priority: values.priority ?? 0,
    preemptible: values.preemptible ?? false,
    gang: values.gang ?? "",
    gangSize: values.gangSize ?? 0,
    placement:
      values.placement === undefined ? Placement.UNSPECIFIED : claimChoices.placement[values.placement],
    locality: values.locality === undefined ? Locality.UNSPECIFIED : claimChoices.locality[values.locality],
    sameNode: values.sameNode ?? false,
    labels: { ...values.labels },
    nodeLabels: { ...values.nodeLabels },
    affinity: { ...values.affinity },
    antiAffinity: { ...values.antiAffinity },
    timeLimitSeconds: values.timeLimit ?? 0,
    idleLimitSeconds: values.idleLimit ?? 0,
    serviceClass:
      values.serviceClass === undefined
        ? ServiceClass.UNSPECIFIED
        : claimChoices.serviceClass[values.serviceClass],
    nodeLoss: values.nodeLoss === undefined ? NodeLoss.UNSPECIFIED : claimChoices.nodeLoss[values.nodeLoss],
    graceSeconds: values.grace ?? 0,
  };
}

/** The fields that are given, as environment variables that `parseClaimVariables` reads back. */
export function formatClaimVariables(values: ClaimValues): [string, string][] {
  const variables: [string, string][] = [];
  for (const name of claimFieldNames) {
    const value: unknown = values[name];
    if (value !== undefined && value !== false) {
      variables.push([claimFieldSpecs[name].env, formatValue(claimFieldSpecs[name].type, value)]);
    }
  }
  return variables;
}

function formatValue(type: ClaimFieldType, value: unknown): string {
  if (type === "percent") {
    return formatPercent(Number(value));
  }
  if (Array.isArray(value)) {
    return value.join(",");
  }
  if (isMemory(value)) {
    return formatMemory(value);
  }
  return typeof value === "object" && value !== null
    ? formatLabels(value as Readonly<Record<string, string>>)
    : String(value);
}

function isMemory(value: unknown): value is MemoryRequest {
  return (
    typeof value === "object" &&
    value !== null &&
    "kind" in value &&
    (typeof Reflect.get(value, "bytes") === "bigint" || typeof Reflect.get(value, "percent") === "number")
  );
}

/** The word for a value of one of the enums of a claim, as on the command line; empty for an unset one. */
/** The service classes, in the spelling used outside the API. */
export const serviceClassWords = ["guaranteed", "burstable", "best-effort"] as const;
export type ServiceClassWord = (typeof serviceClassWords)[number];

/** @returns `guaranteed` for an unknown number, because an older controller sends none */
export function serviceClassWord(value: ServiceClass): ServiceClassWord {
  return serviceClassWords.find((word) => claimChoices.serviceClass[word] === value) ?? "guaranteed";
}

export function claimChoiceWord(field: keyof typeof claimChoices, value: number): string {
  return Object.entries(claimChoices[field]).find(([, each]) => each === value)?.[0] ?? "";
}

/** Converts a member of a file to the text that represents it everywhere else. */
function memberText(name: ClaimFieldName, value: unknown): string {
  const { type } = claimFieldSpecs[name];
  if (type === "list" && Array.isArray(value)) {
    const parts = value.map((each) => scalarText(each));
    const divided = parts.find((part) => part.includes(","));
    if (divided !== undefined) {
      throw millpondError("MILLPOND_E_INVALID", `${quote(divided)} has a comma in it`);
    }
    return parts.join(",");
  }
  if (type === "labels" && typeof value === "object" && value !== null && !Array.isArray(value)) {
    const labels = Object.entries(value).map(([key, each]) => [key, scalarText(each)]);
    // Checked before they are joined into one text, in which a comma or an equals sign would be ambiguous.
    return formatLabels(checkLabels(Object.fromEntries(labels)));
  }
  if (type === "version" && typeof value === "number") {
    // YAML reads 9.0 as the number 9.
    return Number.isInteger(value) ? value.toFixed(1) : String(value);
  }
  return scalarText(value, kindsOfValue[type]);
}

/** The types that a member may have besides text. */
const kindsOfValue: { readonly [T in ClaimFieldType]?: string } = {
  list: "neither a string nor a list such as [H200, A100]",
  labels: "neither a string nor a map such as {app: web}",
};

/** A list or a map without members is the same as an absent member. */
function isEmpty(name: ClaimFieldName, value: unknown): boolean {
  const { type } = claimFieldSpecs[name];
  const isKind = type === "list" ? Array.isArray(value) : type === "labels" && !Array.isArray(value);
  return isKind && typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/**
 * The text of a text, number or boolean.
 *
 * @param what describes any other type, for the message
 * @throws MILLPOND_E_INVALID
 */
export function scalarText(value: unknown, what = "neither a string, a number nor a boolean"): string {
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
    return String(value);
  }
  throw millpondError("MILLPOND_E_INVALID", `the value is ${what}`);
}

/** Adds the subject of an error to its message. */
function about<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const code = errorCodeOf(error);
    if (code === undefined || !(error instanceof Error)) {
      throw error;
    }
    const message = "rawMessage" in error ? String(error.rawMessage) : error.message;
    const [said = "", ...remedies] = message
      .slice(0, message.length - code.length - 3)
      .split(/\. (?=\p{Lu})/u);
    throw millpondError(code, `${what}: ${said}`, { remedy: remedies.join(". "), cause: error });
  }
}

function parseChoice(text: string, { choices = [] }: ClaimField): string {
  if (!choices.includes(text)) {
    throw millpondError("MILLPOND_E_INVALID", `${quote(text)} is not one of ${choices.join(", ")}`);
  }
  return text;
}

/** In other tools the number of GPUs may be a fraction. */
function fractionRemedy(text: string): string | undefined {
  return /^0?\.\d+$/.test(text) ? `For a part of a GPU use --partial ${text}.` : undefined;
}

function parseWhole(text: string, least: number, most: number, remedy?: string): number {
  const number = /^-?\d{1,6}$/.test(text) ? Number(text) : Number.NaN;
  if (!(number >= least && number <= most)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is not a whole number from ${least} to ${most}`,
      remedy === undefined ? {} : { remedy },
    );
  }
  return number;
}

/** Parses a boolean: `1`, `true`, `yes`, `on`, or `0`, `false`, `no`, `off`, in any case. */
function parseFlag(text: string): boolean {
  const isYes = /^(1|true|yes|on)$/i.test(text);
  if (!isYes && !/^(0|false|no|off)$/i.test(text)) {
    throw millpondError("MILLPOND_E_INVALID", `${quote(text)} is neither true nor false`);
  }
  return isYes;
}

/** The API cannot express zero: 0 is the default there. */
function parsePeriod(text: string): number {
  const seconds = parseDuration(text);
  if (seconds === 0) {
    throw millpondError("MILLPOND_E_INVALID", `${quote(text)} is less than 1s`);
  }
  return seconds;
}

function parseList(text: string): readonly string[] {
  const parts = text.split(",").map((part) => part.trim());
  if (parts.length > 16 || parts.some((part) => part === "" || part.length > 64)) {
    throw millpondError(
      "MILLPOND_E_INVALID",
      `${quote(text)} is not 1 to 16 strings of up to 64 characters, separated by commas`,
    );
  }
  return parts;
}

function parseVersion(text: string): string {
  if (!/^\d{1,2}\.\d{1,2}$/.test(text)) {
    throw millpondError("MILLPOND_E_INVALID", `${quote(text)} is not a compute capability such as 9.0`);
  }
  return text;
}
