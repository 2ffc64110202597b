// SPDX-License-Identifier: Apache-2.0

// The calls of a program, from its trace: from where findings were allocated and launched, and which calls failed.

import { existsSync } from "node:fs";
import type { Argument, Call, Frame, Value } from "../trace/line.ts";
import { readTraceFile } from "../trace/read.ts";

/**
 * A call of the program in the worker's terms: a process, one of its threads, and the position of a command
 * in its stream.
 */
export interface CallPlace {
  readonly process: number;
  readonly thread: number;
  readonly offset: number;
}

/** A call, for a report. */
export interface RecordedCall {
  /** With its arguments, as in a trace. */
  readonly text: string;
  readonly result: string;
  /** Innermost first; empty if unknown. */
  readonly stack: readonly Frame[];
}

/** Results that report a state: not errors. */
const notErrors: ReadonlySet<string> = new Set([
  "CUDA_SUCCESS",
  "CUDA_ERROR_NOT_READY",
  "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
  "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
]);

/** A context in which a kernel has failed answers every call with one of these. */
const faults: ReadonlySet<string> = new Set([
  "CUDA_ERROR_ILLEGAL_ADDRESS",
  "CUDA_ERROR_MISALIGNED_ADDRESS",
  "CUDA_ERROR_INVALID_ADDRESS_SPACE",
  "CUDA_ERROR_INVALID_PC",
  "CUDA_ERROR_ILLEGAL_INSTRUCTION",
  "CUDA_ERROR_HARDWARE_STACK_ERROR",
  "CUDA_ERROR_LAUNCH_FAILED",
  "CUDA_ERROR_LAUNCH_TIMEOUT",
  "CUDA_ERROR_ASSERT",
]);

/** Calls by which the CUDA runtime and frameworks probe for features: a refusal is a valid result. */
const question = /Query|Attribute|GetExportTable|GetProcAddress|Occupancy|CanAccessPeer|GetAccess|P2P/;

/** Whether the program made a mistake with this call, judging by its result. */
function isError(call: Call): boolean {
  return (
    !notErrors.has(call.result) &&
    !faults.has(call.result) &&
    !call.isEarlierFailure &&
    !question.test(call.name)
  );
}

function textOf(value: Value): string {
  switch (value.kind) {
    case "word":
      return value.text === undefined ? value.word : `${value.word} ${textOf(value.text)}`;
    case "text":
      return JSON.stringify(value.text) + (value.isCut ? "..." : "");
    case "target":
      return `&${textOf(value.value)}`;
    case "struct":
      return `{${value.fields.map(argumentText).join(", ")}}`;
    case "list":
      return `[${value.values.map(textOf).join(", ")}${value.isCut ? ", ..." : ""}]`;
    case "bytes":
      return `{${value.bytes} bytes}`;
  }
}

function argumentText({ name, value }: Argument): string {
  return `${name}=${textOf(value)}`;
}

function record(call: Call, stack: readonly Frame[]): RecordedCall {
  const args = call.arguments.map(argumentText).concat(call.isCut ? ["..."] : []);
  return { text: `${call.name}(${args.join(", ")})`, result: call.result, stack };
}

const keyOf = ({ process, thread, offset }: CallPlace): string => `${process}/${thread}/${offset}`;

export interface CallRecord {
  /** The call that a place refers to. */
  at(place: CallPlace): RecordedCall | undefined;
  /**
   * Failed calls, in order, without those that only report an earlier failure; `count`: how often that call failed at that
   * place.
   */
  readonly failed: readonly { readonly call: RecordedCall; readonly count: number }[];
  /** For each process in which a kernel failed, the first call that returned the failure. */
  readonly faulted: readonly { readonly call: RecordedCall; readonly count: number }[];
  /** The number of recorded calls. */
  readonly calls: number;
}

/** The requested offsets of a thread, in order. */
function byThread(places: readonly CallPlace[]): Map<string, number[]> {
  const wanted = new Map<string, number[]>();
  for (const { process, thread, offset } of places) {
    const key = `${process}/${thread}`;
    const offsets = wanted.get(key);
    if (offsets === undefined) wanted.set(key, [offset]);
    else offsets.push(offset);
  }
  for (const offsets of wanted.values()) offsets.sort((x, y) => x - y);
  return wanted;
}

/** Index of the first element that is at least `least`. */
function firstAtLeast(sorted: readonly number[], least: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Reads the trace of a program for the calls at `places` and those that failed. Empty where it made no call. */
export async function readCalls(path: string, places: readonly CallPlace[]): Promise<CallRecord> {
  const wanted = byThread(places);
  const found = new Map<string, RecordedCall>();
  const stacks = new Map<string, readonly Frame[]>();
  const failed = new Map<string, { call: RecordedCall; count: number }>();
  const faulted = new Map<number, { call: RecordedCall; count: number }>();
  let calls = 0;
  for await (const entry of existsSync(path) ? readTraceFile(path) : []) {
    if (entry.kind === "stack")
      stacks.set(`${entry.stack.process}/${entry.stack.number}`, entry.stack.frames);
    if (entry.kind !== "call") continue;
    const { call } = entry;
    calls += 1;
    const stack = stacks.get(`${call.process}/${call.stack}`) ?? [];
    if (isError(call)) {
      const key = `${call.process}/${call.name}/${call.result}/${call.stack ?? entry.line}`;
      const known = failed.get(key);
      failed.set(key, { call: known?.call ?? record(call, stack), count: (known?.count ?? 0) + 1 });
    }
    if (faults.has(call.result) && !faulted.has(call.process))
      faulted.set(call.process, { call: record(call, stack), count: 1 });
    if (call.commands === undefined) continue;
    const { thread, begin, end } = call.commands;
    const offsets = wanted.get(`${call.process}/${thread}`) ?? [];
    for (let index = firstAtLeast(offsets, begin); (offsets[index] ?? end) < end; index++) {
      const offset = offsets[index] ?? 0;
      found.set(keyOf({ process: call.process, thread, offset }), record(call, stack));
    }
  }
  return {
    at: (place) => found.get(keyOf(place)),
    failed: [...failed.values()],
    faulted: [...faulted.values()],
    calls,
  };
}
