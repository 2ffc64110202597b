// SPDX-License-Identifier: Apache-2.0

import { createReadStream } from "node:fs";
import { millpondError, quote } from "@millpond/api";
import {
  type Call,
  formVersion,
  type Header,
  parseCall,
  parseHeader,
  parseStack,
  type Stack,
} from "./line.ts";

/** The longest line that is read: those of the client library are below 2 KiB. */
const mostLength = 65_536;

/** An entry of a trace file, with its line number, from 1. */
export type Entry =
  | { readonly kind: "header"; readonly line: number; readonly header: Header }
  | { readonly kind: "call"; readonly line: number; readonly call: Call; readonly text: string }
  | { readonly kind: "stack"; readonly line: number; readonly stack: Stack }
  /** The last line is incomplete: it was being written when the program was killed, or is being written now. */
  | { readonly kind: "cut"; readonly line: number };

/**
 * Reads a trace, however long it is.
 *
 * @throws MILLPOND_E_INVALID for a file that cannot be read, and for a line that does not belong to a trace,
 * with its number
 */
export async function* readTraceFile(path: string): AsyncGenerator<Entry> {
  const processes = new Set<number>();
  let line = 0;
  for await (const { text, isWhole } of linesOf(path)) {
    line++;
    if (!isWhole) {
      yield { kind: "cut", line };
    } else if (text.startsWith("# stack ")) {
      const stack = parseStack(text);
      if (stack === undefined) throw badLine(path, line, text);
      yield { kind: "stack", line, stack };
    } else if (text.startsWith("#")) {
      const header = parseHeader(text);
      if (header === undefined) throw badLine(path, line, text);
      if (header.version !== formVersion) {
        throw millpondError(
          "MILLPOND_E_INVALID",
          `${path}:${line}: this is a trace of version ${header.version}, and version ${formVersion} is known here`,
        );
      }
      processes.add(header.process);
      yield { kind: "header", line, header };
    } else {
      const call = parseCall(text);
      if (call === undefined) throw badLine(path, line, text);
      if (!processes.has(call.process)) {
        throw millpondError(
          "MILLPOND_E_INVALID",
          `${path}:${line}: there is no header of process ${call.process} before its calls`,
        );
      }
      yield { kind: "call", line, call, text: text.trimStart() };
    }
  }
}

function badLine(path: string, line: number, text: string): Error {
  const shown = text.length > 80 ? `${text.slice(0, 80)}…` : text;
  return millpondError("MILLPOND_E_INVALID", `${path}:${line}: ${quote(shown)} is not a line of a trace`);
}

/**
 * The lines of a file. The last one is incomplete if its newline is missing: it is being written, or the program that wrote
 * it was killed.
 */
export async function* linesOf(path: string): AsyncGenerator<{ text: string; isWhole: boolean }> {
  let rest = "";
  try {
    for await (const chunk of createReadStream(path, { encoding: "utf8", highWaterMark: 1 << 18 })) {
      const lines = (rest + String(chunk)).split("\n");
      rest = lines.pop() ?? "";
      for (const text of lines) yield { text, isWhole: true };
      // No newline within the limit: the file is not a trace.
      if (rest.length > mostLength) break;
    }
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw millpondError("MILLPOND_E_INVALID", `the trace ${quote(path)} cannot be read: ${error.message}`);
  }
  if (rest !== "") yield { text: rest, isWhole: rest.length > mostLength };
}
