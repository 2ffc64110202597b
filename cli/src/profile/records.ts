// SPDX-License-Identifier: Apache-2.0

// Device activity of a process, read from the file of a profile, whose format docs/reference/profile.md specifies.

import { millpondError, quote } from "@millpond/api";
import { linesOf } from "../trace/read.ts";

export interface ProfileHeader {
  readonly process: number;
  /** By how many ns the worker's clock is ahead of the program's. */
  readonly lead: bigint;
  /** The round-trip time of the query that measured it, in ns. */
  readonly uncertainty: bigint;
}

interface Work {
  /** Nanoseconds since 1970 by the worker's clock. */
  readonly start: bigint;
  readonly end: bigint;
  readonly device: number;
  readonly context: number;
  readonly stream: number;
  /** Numbers a process's pieces of work in the order in which they were given to the driver. */
  readonly correlation: number;
}

export interface KernelRecord extends Work {
  readonly kind: "kernel";
  readonly name: string;
  /** The name that the compiler generated. */
  readonly symbol: string;
  readonly grid: readonly number[];
  readonly block: readonly number[];
  readonly registers: number;
  readonly staticShared: number;
  readonly dynamicShared: number;
}

export interface CopyRecord extends Work {
  readonly kind: "copy";
  readonly direction: number;
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

export interface FillRecord extends Work {
  readonly kind: "fill";
  readonly value: number;
  readonly bytes: number;
}

export type ProfileRecord = KernelRecord | CopyRecord | FillRecord;

export type ProfileEntry =
  | { readonly kind: "header"; readonly header: ProfileHeader }
  | ProfileRecord
  /** The number of records that were dropped since the process began. */
  | { readonly kind: "lost"; readonly records: number };

const headerForm = /^# millpond profile (\d+), process (\d+), clock (-?\d+), uncertainty (\d+)$/;
const version = 1;
/** Fields of a line, including its kind and those of all work. */
const fieldCounts: Readonly<Record<string, number>> = { k: 17, c: 11, f: 9 };

/**
 * Reads a profile. A last line without a line end, as left by a killed program, is ignored.
 *
 * @throws MILLPOND_E_INVALID for a malformed line, with its number
 */
export async function* readProfile(path: string): AsyncGenerator<ProfileEntry> {
  const reader = new LineReader(path);
  for await (const { text, isWhole } of linesOf(path)) {
    if (!isWhole) return;
    const entry = reader.read(text);
    if (entry !== undefined) yield entry;
  }
}

class LineReader {
  readonly #path: string;
  readonly #names = new Map<number, { readonly name: string; readonly symbol: string }>();
  #line = 0;
  #hasHeader = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** The entry of a line; undefined for a line that only defines a name. */
  read(text: string): ProfileEntry | undefined {
    this.#line++;
    const entry = this.#parse(text);
    if (entry === undefined) throw this.#bad(text);
    return entry === "name" ? undefined : entry;
  }

  #parse(text: string): ProfileEntry | "name" | undefined {
    const head = headerForm.exec(text);
    if (head !== null) {
      const [, form, process, lead = "0", uncertainty = "0"] = head;
      if (Number(form) !== version) return undefined;
      this.#hasHeader = true;
      return {
        kind: "header",
        header: { process: Number(process), lead: BigInt(lead), uncertainty: BigInt(uncertainty) },
      };
    }
    if (!this.#hasHeader) return undefined;
    const fields = text.split("\t");
    const [kind = ""] = fields;
    if (kind === "name") return this.#parseName(fields);
    if (!fields.slice(1).every((field) => /^-?\d{1,20}$/.test(field))) return undefined;
    if (kind === "lost") {
      return fields.length === 2 ? { kind: "lost", records: Number(fields[1]) } : undefined;
    }
    return fields.length === fieldCounts[kind] ? this.#parseWork(kind, fields) : undefined;
  }

  #parseName([, number = "", name = "", symbol = "", ...rest]: readonly string[]): "name" | undefined {
    if (!/^\d{1,9}$/.test(number) || rest.length > 0) return undefined;
    try {
      const parsed: unknown[] = [JSON.parse(name), JSON.parse(symbol)];
      const [readable, mangled] = parsed;
      if (typeof readable !== "string" || typeof mangled !== "string") return undefined;
      this.#names.set(Number(number), { name: readable, symbol: mangled });
      return "name";
    } catch (error) {
      if (error instanceof SyntaxError) return undefined;
      throw error;
    }
  }

  #parseWork(kind: string, fields: readonly string[]): ProfileRecord | undefined {
    const [, start = "0", end = "0"] = fields;
    const numbers = fields.slice(3).map(Number);
    const [device = 0, context = 0, stream = 0, correlation = 0, a = 0, b = 0, c = 0, d = 0] = numbers;
    const work: Work = { start: BigInt(start), end: BigInt(end), device, context, stream, correlation };
    if (work.end < work.start) return undefined;
    if (kind === "c") return { ...work, kind: "copy", direction: a, from: b, to: c, bytes: d };
    if (kind === "f") return { ...work, kind: "fill", value: a, bytes: b };
    const name = this.#names.get(a);
    if (name === undefined) return undefined;
    const [registers = 0, staticShared = 0, dynamicShared = 0] = numbers.slice(11);
    return {
      ...work,
      kind: "kernel",
      ...name,
      grid: numbers.slice(5, 8),
      block: numbers.slice(8, 11),
      registers,
      staticShared,
      dynamicShared,
    };
  }

  #bad(text: string): Error {
    const shown = text.length > 80 ? `${text.slice(0, 80)}…` : text;
    return millpondError(
      "MILLPOND_E_INVALID",
      `${this.#path}:${this.#line}: ${quote(shown)} is not a line of a profile`,
    );
  }
}
