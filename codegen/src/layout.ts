// SPDX-License-Identifier: Apache-2.0
/** Sizes, alignments and offsets of the API's types on 64-bit Linux (System V AMD64 and AArch64 agree on them). */
import type { Abi, FieldType, Member, TypeDeclaration } from "@millpond/cuda";

export interface TypeLayout {
  readonly size: number;
  readonly align: number;
}

export interface FieldLayout {
  /** Path in the form that `offsetof` takes: `res.linear.devPtr`. */
  readonly path: string;
  readonly offset: number;
  readonly size: number;
}

const pointer: TypeLayout = { size: 8, align: 8 };

/** Basic types by their C spelling. */
const basic: Readonly<Record<string, TypeLayout>> = {
  char: { size: 1, align: 1 },
  "signed char": { size: 1, align: 1 },
  "unsigned char": { size: 1, align: 1 },
  short: { size: 2, align: 2 },
  "unsigned short": { size: 2, align: 2 },
  int: { size: 4, align: 4 },
  "unsigned int": { size: 4, align: 4 },
  long: { size: 8, align: 8 },
  "unsigned long": { size: 8, align: 8 },
  "long long": { size: 8, align: 8 },
  "unsigned long long": { size: 8, align: 8 },
  float: { size: 4, align: 4 },
  double: { size: 8, align: 8 },
  size_t: { size: 8, align: 8 },
  uint32_t: { size: 4, align: 4 },
  uint64_t: { size: 8, align: 8 },
};

export const roundUp = (value: number, to: number): number => Math.ceil(value / to) * to;

/** Layouts of the types of one API. */
export class Layouts {
  readonly #types: ReadonlyMap<string, TypeDeclaration>;

  constructor(abi: Pick<Abi, "types">) {
    this.#types = new Map(abi.types.map((type) => [type.name, type]));
  }

  declaration(name: string): TypeDeclaration | undefined {
    return this.#types.get(name);
  }

  /** The type behind all aliases, without `const`: `CUdeviceptr` → `unsigned long long`. */
  resolve(type: string): string {
    const plain = type.replace(/^const /, "");
    const declared = this.#types.get(plain);
    return declared?.kind === "alias" ? this.resolve(declared.type) : plain;
  }

  /** A canonical spelling: equal for two types exactly when they are the same to the compiler. */
  spell(type: string): string {
    const stars = /[*]*$/.exec(type)?.[0] ?? "";
    const element = type.slice(0, type.length - stars.length);
    const isConst = element.startsWith("const ");
    return `${isConst ? "const " : ""}${this.resolve(element)}${stars}`;
  }

  /** Throws for a type that the API does not know. */
  of(type: string): TypeLayout {
    if (type.endsWith("*") || type.endsWith("* const")) return pointer;
    const resolved = this.resolve(type);
    const known = basic[resolved];
    if (known) return known;
    const declared = this.#types.get(resolved);
    switch (declared?.kind) {
      case "handle":
      case "callback":
        return pointer;
      case "enum":
        return { size: 4, align: 4 };
      case "struct":
      case "union":
        return this.#record(declared.kind, declared.members, "", 0).layout;
      default:
        throw new Error(`no type is called ${resolved}`);
    }
  }

  /** All fields of a struct or union, including nested ones, in the order of declaration. */
  fields(name: string): readonly FieldLayout[] {
    const declared = this.#types.get(this.resolve(name));
    if (declared?.kind !== "struct" && declared?.kind !== "union")
      throw new Error(`${name} is not a struct or union`);
    return this.#record(declared.kind, declared.members, "", 0).fields;
  }

  /** Whether the type contains a pointer, handle or callback at any depth. */
  containsPointers(type: string): boolean {
    if (type.endsWith("*") || type.endsWith("* const")) return true;
    const declared = this.#types.get(this.resolve(type));
    if (declared?.kind === "handle" || declared?.kind === "callback") return true;
    if (declared?.kind !== "struct" && declared?.kind !== "union") return false;
    const inside = (members: readonly Member[]): boolean =>
      members.some((m) => (m.record ? inside(m.record.members) : this.containsPointers(m.type ?? "")));
    return inside(declared.members);
  }

  #record(
    kind: "struct" | "union",
    members: readonly Member[],
    prefix: string,
    base: number,
  ): { layout: TypeLayout; fields: FieldLayout[] } {
    const fields: FieldLayout[] = [];
    let end = 0;
    let align = 1;
    for (const member of members) {
      const own = this.#memberLayout(member);
      const offset = kind === "union" ? 0 : roundUp(end, own.align);
      end = Math.max(end, offset + own.size);
      align = Math.max(align, own.align);
      const path = member.name === undefined ? "" : prefix + member.name;
      if (path !== "") fields.push({ path, offset: base + offset, size: own.size });
      if (member.record) {
        const inner = path === "" ? prefix : `${path}.`;
        fields.push(...this.#record(member.record.kind, member.record.members, inner, base + offset).fields);
      }
    }
    return { layout: { size: roundUp(end, align), align }, fields };
  }

  /** The layout of a member with all its elements. */
  ofMember(member: Member): TypeLayout {
    return this.#memberLayout(member);
  }

  #memberLayout(member: Member): TypeLayout {
    const element = member.record
      ? this.#record(member.record.kind, member.record.members, "", 0).layout
      : this.of(member.type ?? "");
    const count = (member.dimensions ?? []).reduce((product, n) => product * n, 1);
    return { size: element.size * count, align: Math.max(element.align, member.align ?? 1) };
  }
}

/** The pointee of a pointer type: `const CUuuid*` → `const CUuuid`; undefined for other types. */
export const pointee = (type: string): string | undefined =>
  type.endsWith("*") ? type.slice(0, -1) : undefined;

const scalarFields: Readonly<Record<string, FieldType>> = {
  "unsigned char": "u8",
  "unsigned short": "u16",
  int: "i32",
  "unsigned int": "u32",
  uint32_t: "u32",
  "long long": "i64",
  "unsigned long long": "u64",
  size_t: "u64",
  uint64_t: "u64",
  float: "f32",
};

/** The wire type of a number or enum; undefined for pointers, handles and structs. */
export function fieldTypeOf(layouts: Layouts, type: string): FieldType | undefined {
  const resolved = layouts.resolve(type);
  return layouts.declaration(resolved)?.kind === "enum" ? "i32" : scalarFields[resolved];
}
