// SPDX-License-Identifier: Apache-2.0

// Reasons as JSON: in the store, and in the API as a Struct. All sizes are below 2^53.

import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { isReasonCode, type Kind, type Reason, reasonArgs, reason as makeReason } from "./args.ts";
import { mapArgs } from "./render.ts";

/** `{"code": "…", "args": {…}}`. */
export function reasonToJson(reason: Reason): JsonObject {
  return { code: reason.code, args: argsToJson(reason) };
}

/** The arguments alone, without undefined ones. */
export function argsToJson(reason: Reason): JsonObject {
  const args = mapArgs(reason, (value, kind) =>
    kind === "reason" ? reasonToJson(value as Reason) : toJson(value),
  );
  const json: Record<string, JsonValue> = {};
  for (const [name, value] of Object.entries(args)) {
    if (value !== undefined) {
      json[name] = value as JsonValue;
    }
  }
  return json;
}

function toJson(value: unknown): JsonValue {
  if (typeof value === "bigint") {
    return Number(value);
  }
  if (Array.isArray(value)) {
    return value.map(toJson);
  }
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, toJson(each)]));
  }
  // All remaining kinds of arguments.
  return value as string | number | boolean;
}

/** Parses the output of `reasonToJson`; undefined: it is not a reason that this version knows. */
export function reasonFromJson(json: unknown): Reason | undefined {
  if (!isObject(json) || typeof json["code"] !== "string" || !isReasonCode(json["code"])) {
    return undefined;
  }
  const { code, args } = json;
  if (!isObject(args)) {
    return undefined;
  }
  const kinds: Readonly<Record<string, string>> = reasonArgs[code];
  const read: Record<string, unknown> = {};
  for (const [name, kind] of Object.entries(kinds)) {
    const value = args[name];
    const isOptional = kind.endsWith("?");
    const found = value === undefined ? undefined : readArg(value, kind.replace("?", "") as Kind);
    if (found === undefined && !(isOptional && value === undefined)) {
      return undefined;
    }
    read[name] = found;
  }
  return { code, args: read } as unknown as Reason;
}

/** The reason in the form in which it is stored: JSON in one column. */
export function writeReason(reason: Reason | undefined): string {
  return reason === undefined ? "" : JSON.stringify(reasonToJson(reason));
}

/** Parses a stored reason. A text of an earlier or a later release becomes a `recorded` reason; empty: undefined. */
export function readReason(text: string): Reason | undefined {
  if (text === "") {
    return undefined;
  }
  return (text.startsWith("{") ? reasonFromJson(parse(text)) : undefined) ?? makeReason("recorded", { text });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // A text of an earlier release that happens to begin with a brace.
    return undefined;
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((each) => typeof each === "string");
}

/** @returns undefined when it is not of the kind */
function readArg(value: unknown, kind: Kind): unknown {
  switch (kind) {
    case "text":
    case "unsafeText":
    case "name":
      return typeof value === "string" ? value : undefined;
    case "texts":
      return isTexts(value) ? value : undefined;
    case "flag":
      return typeof value === "boolean" ? value : undefined;
    case "count":
    case "percent":
    case "seconds":
    case "gpuMilli":
      return typeof value === "number" ? value : undefined;
    case "bytes":
      return Number.isSafeInteger(value) ? BigInt(value as number) : undefined;
    case "labels":
      return isObject(value) && isTexts(Object.values(value)) ? value : undefined;
    case "quota":
      return readQuota(value);
    case "excess":
      return isObject(value) &&
        ["gpuMilli", "computePercent", "memoryBytes"].includes(String(value["resource"])) &&
        typeof value["amount"] === "number" &&
        typeof value["limit"] === "number"
        ? value
        : undefined;
    case "holder":
      return isHolder(value) ? value : undefined;
    case "holders":
      return Array.isArray(value) && value.every(isHolder) ? value : undefined;
    case "reason":
      return reasonFromJson(value);
  }
}

function readQuota(value: unknown): unknown {
  if (!isObject(value)) {
    return undefined;
  }
  const { gpuMilli, computePercent, memoryBytes } = value;
  return {
    ...(typeof gpuMilli === "number" ? { gpuMilli } : {}),
    ...(typeof computePercent === "number" ? { computePercent } : {}),
    ...(Number.isSafeInteger(memoryBytes) ? { memoryBytes: BigInt(memoryBytes as number) } : {}),
  };
}

function isHolder(value: unknown): boolean {
  return (
    isObject(value) &&
    (value["kind"] === "claim" || value["kind"] === "gang") &&
    typeof value["name"] === "string" &&
    typeof value["tenant"] === "string"
  );
}
