// SPDX-License-Identifier: Apache-2.0
/**
 * `native/client/gen/trace_tables.cpp`: how the arguments of every call are printed in a trace, as tables that
 * `native/client/trace_format.cpp` reads. Numbers instead of pointers, so that the loader has nothing to relocate.
 */
import type { EnumDeclaration, Member, Parameter } from "@millpond/cuda";
import { exportedSymbols } from "./emit-client.ts";
import { pointee } from "./layout.ts";
import type { Entry, Plan } from "./plan/plan.ts";
import { banner } from "./text.ts";

/** A `Kind`, with its struct or enum. */
interface Shown {
  readonly kind: string;
  readonly of?: string;
}

interface Item extends Shown {
  readonly name: string;
  readonly offset: number;
  readonly shape: "kValue" | "kRead" | "kWritten" | "kInPlace";
}

/** Upper bound on the members that are printed: the first ones of a wide struct. */
const mostFields = 24;

const numbers: Readonly<Record<string, string>> = {
  char: "kI8",
  "signed char": "kI8",
  "unsigned char": "kU8",
  short: "kI16",
  "unsigned short": "kU16",
  int: "kI32",
  "unsigned int": "kU32",
  uint32_t: "kU32",
  long: "kI64",
  "long long": "kI64",
  "unsigned long": "kU64",
  "unsigned long long": "kU64",
  size_t: "kU64",
  uint64_t: "kU64",
  float: "kF32",
  double: "kF64",
};

const hex: Shown = { kind: "kHex64" };

/** Pointers to pointers that a call writes; the others are arrays that it reads. */
const writtenPointers = new Set(["pp", "pfn", "ppExportTable", "cubinOut"]);
/** Buffers in which a successful call stores a text. */
const textBuffers = new Set(["name", "pciBusId"]);

class TraceTables {
  readonly #plan: Plan;
  readonly #words = new Map<string, number>();
  #wordBytes = 0;
  readonly #enums = new Map<string, number>();
  readonly #structs = new Map<string, number>();
  readonly #fields: string[] = [];
  readonly #structRanges: string[] = [];
  readonly #enumRows: string[] = [];
  readonly #enumValues: string[] = [];

  constructor(plan: Plan) {
    this.#plan = plan;
  }

  text(): string {
    const parameters: string[] = [];
    const known = new Map<string, number>();
    const symbols = exportedSymbols(this.#plan).map(({ entry, variant }) => {
      const rows = entry.parameters.map((parameter) => this.#row(this.#parameter(entry, parameter)));
      const text = rows.join("\n");
      const first = known.get(text) ?? parameters.length;
      if (!known.has(text)) {
        known.set(text, first);
        parameters.push(...rows);
      }
      return `    {${this.#word(variant.symbol)}, ${first}, ${rows.length}},  // ${variant.symbol}`;
    });
    const words = [...this.#words.keys()].map((word) => `    "${word}\\0"`);
    return `${banner("How the arguments of every call are shown in a trace.")}
#include "client/trace/trace_tables.h"

namespace millpond::client::trace {

// Each ends with a zero; the tables know them by their first byte.
const char kWords[] =
${words.join("\n")};

// Name, struct or enum, offset, kind, shape.
const Item kParameters[] = {
${parameters.join("\n")}
};

// Name, first parameter and their number.
const Symbol kSymbols[] = {
${symbols.join("\n")}
};
const uint32_t kSymbolCount = ${symbols.length};

const Item kFields[] = {
${this.#fields.join("\n")}
};

// First field and their number.
const Range kStructs[] = {
${this.#structRanges.join("\n")}
};

// First value, their number, and the common prefix of their names.
const Enum kEnums[] = {
${this.#enumRows.join("\n")}
};

// Value, and the rest of its name.
const EnumValue kEnumValues[] = {
${this.#enumValues.join("\n")}
};

}  // namespace millpond::client::trace
`;
  }

  #word(word: string): number {
    const known = this.#words.get(word);
    if (known !== undefined) return known;
    const at = this.#wordBytes;
    this.#words.set(word, at);
    this.#wordBytes += word.length + 1;
    if (this.#wordBytes > 0xffff) throw new Error("the words of a trace need more than 16 bits");
    return at;
  }

  #row({ name, of, offset, kind, shape }: Item): string {
    let index = 0;
    if (of !== undefined) index = kind === "kEnum" ? this.#enum(of) : this.#struct(of);
    return `    {${this.#word(name)}, ${index}, ${offset}, Kind::${kind}, Shape::${shape}},`;
  }

  #parameter(entry: Entry, { name, type }: Parameter): Item {
    const item = (shape: Item["shape"], shown: Shown): Item => ({ name, offset: 0, shape, ...shown });
    if (name === "kernelParams") return item("kValue", { kind: "kKernelParameters" });
    if (type === "const char*") return item("kRead", { kind: "kText" });
    if (type === "const char**") return item("kWritten", { kind: "kTextPointer" });
    if (type === "char*")
      return textBuffers.has(name) ? item("kWritten", { kind: "kText" }) : item("kValue", hex);
    const target = pointee(type);
    if (target === undefined) {
      const shown = this.#shown(name, type);
      return item(shown.kind === "kStruct" || shown.kind === "kUuid" ? "kInPlace" : "kValue", shown);
    }
    if (target.endsWith("*"))
      return writtenPointers.has(name) || target.startsWith("const CU")
        ? item("kWritten", hex)
        : item("kValue", hex);
    const isConst = target.startsWith("const ");
    const shown = this.#shown(name, target.replace(/^const /, ""));
    const isRecord = shown.kind === "kStruct" || shown.kind === "kUuid";
    // The length of a constant array is unknown here, and so is whether the driver would read it.
    const isArray = isConst && !isRecord;
    if (shown.kind === "kOpaque" || isArray) return item("kValue", hex);
    // A counted list may be empty.
    const isCounted = entry.parameters.some((p) => /^(num|count)/i.test(p.name) && !p.type.endsWith("*"));
    const isList = isRecord && isConst ? isCounted : isCounted && /(s|List|Array)$/.test(name);
    if (isList) return item("kValue", hex);
    return item(isConst ? "kRead" : "kWritten", shown);
  }

  /** How a value of a non-pointer type is printed. */
  #shown(name: string, type: string): Shown {
    if (type.endsWith("*")) return hex;
    if (type === "CUstream") return { kind: "kStream" };
    if (type === "CUfunction" || type === "CUkernel") return { kind: "kFunction" };
    const { layouts } = this.#plan;
    const resolved = layouts.resolve(type);
    if (resolved === "CUresult") return { kind: "kResult" };
    const declared = layouts.declaration(resolved);
    if (declared?.kind === "handle" || declared?.kind === "callback") return hex;
    if (declared?.kind === "enum") return { kind: "kEnum", of: resolved };
    if (type === "CUuuid") return { kind: "kUuid" };
    if (declared?.kind === "struct" && this.#mainFields(resolved).length > 0)
      return { kind: "kStruct", of: resolved };
    const number = numbers[resolved];
    if (number === undefined) return { kind: "kOpaque" };
    // Addresses and objects that are numbers to the compiler.
    if (number === "kU64" && type.startsWith("CU")) return hex;
    if (/flags(_out)?$/i.test(name)) {
      if (number === "kU32") return { kind: "kBits32" };
      if (number === "kU64") return { kind: "kBits64" };
    }
    return { kind: number };
  }

  /** The printable members of a struct: no unions, whose meaning depends on context, no arrays, and no reserved members. */
  #mainFields(name: string): Item[] {
    const { layouts } = this.#plan;
    const declared = layouts.declaration(name);
    if (declared?.kind !== "struct") return [];
    const offsets = new Map(layouts.fields(name).map(({ path, offset }) => [path, offset]));
    const collect = (members: readonly Member[], prefix: string, base: number): Item[] =>
      members.flatMap((member): Item[] => {
        if (member.name === undefined || member.dimensions || /^reserved|^pad/i.test(member.name)) return [];
        const path = prefix + member.name;
        const offset = base + (offsets.get(path) ?? 0);
        if (member.record)
          return member.record.kind === "struct" ? collect(member.record.members, `${path}.`, base) : [];
        const type = member.type ?? "";
        const inner = layouts.declaration(layouts.resolve(type));
        if (inner?.kind === "struct" && type !== "CUuuid")
          return this.#mainFields(inner.name).map((field) => ({
            ...field,
            name: `${path}.${field.name}`,
            offset: offset + field.offset,
          }));
        const shown = this.#shown(member.name, type);
        return shown.kind === "kOpaque" ? [] : [{ name: path, offset, shape: "kInPlace", ...shown }];
      });
    return collect(declared.members, "", 0).slice(0, mostFields);
  }

  #struct(name: string): number {
    const known = this.#structs.get(name);
    if (known !== undefined) return known;
    const index = this.#structs.size;
    this.#structs.set(name, index);
    const rows = this.#mainFields(name).map((field) => this.#row(field));
    this.#structRanges.push(`    {${this.#fields.length}, ${rows.length}},  // ${name}`);
    this.#fields.push(...rows);
    return index;
  }

  #enum(name: string): number {
    const known = this.#enums.get(name);
    if (known !== undefined) return known;
    const index = this.#enums.size;
    this.#enums.set(name, index);
    const declared = this.#plan.layouts.declaration(name) as EnumDeclaration;
    // Keeps the first of two names for one value; names that only count or pad the type are left out.
    const values = new Map<number, string>();
    for (const [label, value] of declared.values)
      if (!values.has(value) && !/_(MAX|FORCE_32BIT)$/.test(label)) values.set(value, label);
    const prefix = commonPrefix([...values.values()]);
    this.#enumRows.push(
      `    {${this.#enumValues.length}, ${values.size}, ${this.#word(prefix)}},  // ${name}`,
    );
    for (const [value, label] of values)
      this.#enumValues.push(`    {${value}, ${this.#word(label.slice(prefix.length))}},`);
    return index;
  }
}

/** The common prefix of the words, up to an underscore. */
function commonPrefix(words: readonly string[]): string {
  const [first = "", ...rest] = words;
  let length = first.length;
  for (const word of rest) while (!word.startsWith(first.slice(0, length))) length--;
  return rest.length === 0 ? first : first.slice(0, first.lastIndexOf("_", length - 1) + 1);
}

export const emitTraceTables = (plan: Plan): string => new TraceTables(plan).text();
