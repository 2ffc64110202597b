// SPDX-License-Identifier: Apache-2.0

// The lines of a trace, in the form of docs/reference/trace.md.

/** A value as a trace shows it. */
export type Value =
  /** A number, an address, a name; `text` after a function is its own name. */
  | { readonly kind: "word"; readonly word: string; readonly text?: Text }
  | Text
  /** The target of a pointer. */
  | { readonly kind: "target"; readonly value: Value }
  | { readonly kind: "struct"; readonly fields: readonly Argument[] }
  /** `isCut`: there were more elements. */
  | { readonly kind: "list"; readonly values: readonly Value[]; readonly isCut: boolean }
  /** A value that was too long to be shown. */
  | { readonly kind: "bytes"; readonly bytes: number };

export interface Text {
  readonly kind: "text";
  readonly text: string;
  /** There was more of it. */
  readonly isCut: boolean;
}

export interface Argument {
  readonly name: string;
  readonly value: Value;
}

/** The line before the calls of a process. */
export interface Header {
  readonly process: number;
  readonly started: string;
  readonly program: string;
}

export interface Call {
  /** Times are nanoseconds since the header of the call's process. */
  readonly start: number;
  readonly duration: number;
  readonly process: number;
  readonly thread: number;
  readonly name: string;
  readonly arguments: readonly Argument[];
  /** The line had no room for all arguments. */
  readonly isCut: boolean;
  readonly result: string;
  readonly waits: number;
  readonly isEarlierFailure: boolean;
  /** The commands of the session that the call caused, in a trace with stacks. */
  readonly commands?: Commands;
  /** Number of the call's stack within its process, in a trace with stacks. */
  readonly stack?: number;
}

/** Commands in the stream of a session, from offset `begin` up to but excluding `end`, all of one thread. */
export interface Commands {
  /** The session's own number of the thread. */
  readonly thread: number;
  readonly begin: number;
  readonly end: number;
}

/** A return address of a stack, as a place in the file of a module. */
export interface Frame {
  /** Empty if no module is there, as for code generated at run time. */
  readonly file: string;
  readonly offset: string;
  /** The nearest exported name before it. */
  readonly symbol?: string;
}

export interface Stack {
  readonly process: number;
  readonly number: number;
  /** Innermost first. */
  readonly frames: readonly Frame[];
}

const headerForm = /^# millpond trace (\d+), process (\d+), started (\S+), program (.*)$/;
const callForm = /^ *(\d+)\.(\d{3}) \+(\d+)\.(\d{3}) (\d+)\/(\d+) (cu\w+)\(/;
const resultForm =
  /^\) = ([A-Z]\w*|-?\d+)(?:; waits (\d+))?(; of an earlier call)?(?:; commands (\d+)\/(\d+)-(\d+))?(?:; stack (\d+))?$/;
const stackForm = /^# stack (\d+)\/(\d+)(( "(?:[^"\\]|\\["\\])*"\+0x[0-9a-f]+(?::"(?:[^"\\]|\\["\\])*")?)+)$/;
const frameForm = / "((?:[^"\\]|\\["\\])*)"\+(0x[0-9a-f]+)(?::"((?:[^"\\]|\\["\\])*)")?/g;

export const formVersion = 1;

/** The header in a line; undefined if the line is not a header. `version` is that of the format. */
export function parseHeader(line: string): (Header & { readonly version: number }) | undefined {
  const match = headerForm.exec(line);
  if (match === null) return undefined;
  const [, version, process, started = "", program = ""] = match;
  return { version: Number(version), process: Number(process), started, program };
}

/** The stack in a line; undefined if the line is not a stack. */
export function parseStack(line: string): Stack | undefined {
  const match = stackForm.exec(line);
  if (match === null) return undefined;
  const unescaped = (text: string): string => text.replaceAll(/\\(.)/g, "$1");
  const frames = [...(match[3] ?? "").matchAll(frameForm)].map(
    ([, file = "", offset = "", symbol]): Frame => ({
      file: unescaped(file),
      offset,
      ...(symbol !== undefined && { symbol: unescaped(symbol) }),
    }),
  );
  return { process: Number(match[1]), number: Number(match[2]), frames };
}

/** The call in a line; undefined if the line is not a call. */
export function parseCall(line: string): Call | undefined {
  const head = callForm.exec(line);
  if (head === null) return undefined;
  const [text, start, startRest, took, tookRest, process, thread, name = ""] = head;
  const reader = new Reader(line, text.length);
  const read = reader.fields(")");
  if (read === undefined) return undefined;
  const tail = resultForm.exec(line.slice(reader.position));
  if (tail === null) return undefined;
  return {
    start: Number(start) * 1000 + Number(startRest),
    duration: Number(took) * 1000 + Number(tookRest),
    process: Number(process),
    thread: Number(thread),
    name,
    arguments: read.fields,
    isCut: read.isCut,
    result: tail[1] ?? "",
    waits: Number(tail[2] ?? 0),
    isEarlierFailure: tail[3] !== undefined,
    ...(tail[4] !== undefined && {
      commands: { thread: Number(tail[4]), begin: Number(tail[5]), end: Number(tail[6]) },
    }),
    ...(tail[7] !== undefined && { stack: Number(tail[7]) }),
  };
}

/** Limit on the nesting of values: no trace comes close to it, and no line can exhaust the stack. */
const mostDepth = 8;

/** Reads values from a line. Returns undefined for anything else: then the line is not from a trace. */
class Reader {
  position: number;
  readonly #line: string;

  constructor(line: string, position: number) {
    this.#line = line;
    this.position = position;
  }

  /** Reads `name=value, …` up to `end`, which it does not consume. */
  fields(end: ")" | "}", depth = 0): { fields: Argument[]; isCut: boolean } | undefined {
    const fields: Argument[] = [];
    if (this.#sees(end)) return { fields, isCut: false };
    for (;;) {
      if (this.#takes("...")) return this.#sees(end) ? { fields, isCut: true } : undefined;
      const name = this.#match(/[A-Za-z_][\w.]*/y);
      if (name === undefined || !this.#takes("=")) return undefined;
      const value = this.#value(depth);
      if (value === undefined) return undefined;
      fields.push({ name, value });
      if (this.#sees(end)) return { fields, isCut: false };
      if (!this.#takes(", ")) return undefined;
    }
  }

  #value(depth: number): Value | undefined {
    if (depth > mostDepth) return undefined;
    if (this.#takes("&")) {
      const value = this.#value(depth + 1);
      return value && { kind: "target", value };
    }
    if (this.#sees('"')) return this.#text();
    if (this.#takes("{")) {
      const bytes = this.#match(/\d+(?= bytes\})/y);
      if (bytes !== undefined) {
        this.position += " bytes}".length;
        return { kind: "bytes", bytes: Number(bytes) };
      }
      const read = this.fields("}", depth + 1);
      return read === undefined || read.isCut || !this.#takes("}")
        ? undefined
        : { kind: "struct", fields: read.fields };
    }
    if (this.#takes("[")) return this.#list(depth + 1);
    const word = this.#match(/[\w.+-]+/y);
    if (word === undefined) return undefined;
    if (!this.#takes(' "')) return { kind: "word", word };
    this.position--;
    const text = this.#text();
    return text && { kind: "word", word, text };
  }

  #list(depth: number): Value | undefined {
    const values: Value[] = [];
    if (this.#takes("]")) return { kind: "list", values, isCut: false };
    for (;;) {
      if (this.#takes("...]")) return { kind: "list", values, isCut: true };
      const value = this.#value(depth);
      if (value === undefined) return undefined;
      values.push(value);
      if (this.#takes("]")) return { kind: "list", values, isCut: false };
      if (!this.#takes(", ")) return undefined;
    }
  }

  #text(): Text | undefined {
    const quoted = this.#match(/"(?:[^"\\]|\\["\\]|\\u[0-9a-f]{4})*"/y);
    if (quoted === undefined) return undefined;
    const text = quoted
      .slice(1, -1)
      .replace(/\\(?:u([0-9a-f]{4})|(.))/g, (_, code: string | undefined, char: string | undefined) =>
        code === undefined ? (char ?? "") : String.fromCharCode(Number.parseInt(code, 16)),
      );
    return { kind: "text", text, isCut: this.#takes("...") };
  }

  #sees(text: string): boolean {
    return this.#line.startsWith(text, this.position);
  }

  #takes(text: string): boolean {
    if (!this.#sees(text)) return false;
    this.position += text.length;
    return true;
  }

  #match(form: RegExp): string | undefined {
    form.lastIndex = this.position;
    const [text] = form.exec(this.#line) ?? [];
    if (text !== undefined) this.position += text.length;
    return text;
  }
}
