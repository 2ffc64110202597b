// SPDX-License-Identifier: Apache-2.0

import type { Argument, Call, Value } from "./line.ts";

/** `unified`: an address of host or device memory, as `cuMemcpy` takes them. */
export type Place = "host" | "device" | "unified";

export interface Copy {
  readonly from: Place;
  readonly to: Place;
  readonly bytes: number;
}

const places: Readonly<Record<string, Place>> = { H: "host", D: "device", A: "device" };

const memoryTypes: Readonly<Record<string, Place>> = {
  CU_MEMORYTYPE_HOST: "host",
  CU_MEMORYTYPE_DEVICE: "device",
  CU_MEMORYTYPE_ARRAY: "device",
  CU_MEMORYTYPE_UNIFIED: "unified",
};

/** Returns the copy that a call makes; undefined if it makes none, or does not state its size. */
export function copyOf(call: Call): Copy | undefined {
  const [, what] = /^cuMemcpy(\w*)$/.exec(call.name) ?? [];
  if (what === undefined) return undefined;
  const [, from, to] = /^([HDA])to([HDA])/.exec(what) ?? [];
  if (from !== undefined && to !== undefined) {
    const bytes = numberOf(call.arguments, "ByteCount");
    return bytes === undefined
      ? undefined
      : { from: places[from] ?? "unified", to: places[to] ?? "unified", bytes };
  }
  if (/^[23]D/.test(what)) return boxOf(call);
  const bytes = numberOf(call.arguments, "ByteCount");
  if (bytes === undefined) return undefined;
  const place: Place = what.startsWith("Peer") ? "device" : "unified";
  return { from: place, to: place, bytes };
}

/** A copy in two or three dimensions, described by a struct. */
function boxOf(call: Call): Copy | undefined {
  const [description] = call.arguments;
  if (description?.value.kind !== "target" || description.value.value.kind !== "struct") return undefined;
  const { fields } = description.value.value;
  const width = numberOf(fields, "WidthInBytes");
  const height = numberOf(fields, "Height");
  if (width === undefined || height === undefined) return undefined;
  const isPeer = call.name.includes("Peer");
  const place = (field: string): Place =>
    memoryTypes[wordOf(fields, field) ?? ""] ?? (isPeer ? "device" : "unified");
  return {
    from: place("srcMemoryType"),
    to: place("dstMemoryType"),
    bytes: width * height * (numberOf(fields, "Depth") ?? 1),
  };
}

/**
 * Returns the kernel that a call launches, by name, or by handle if the name is unknown; undefined: the call launches none.
 */
export function launchedBy(call: Call): string | undefined {
  if (call.name.startsWith("cuGraphLaunch")) return "(graph)";
  if (!/^cuLaunch(?!HostFunc)/.test(call.name)) return undefined;
  const value = valueOf(call.arguments, "f");
  if (value?.kind !== "word") return undefined;
  if (value.text === undefined) return value.word;
  return value.text.isCut ? `${value.text.text}…` : value.text.text;
}

function valueOf(all: readonly Argument[], name: string): Value | undefined {
  return all.find((argument) => argument.name === name)?.value;
}

function wordOf(all: readonly Argument[], name: string): string | undefined {
  const value = valueOf(all, name);
  return value?.kind === "word" ? value.word : undefined;
}

function numberOf(all: readonly Argument[], name: string): number | undefined {
  const word = wordOf(all, name);
  return word !== undefined && /^\d+$/.test(word) ? Number(word) : undefined;
}
