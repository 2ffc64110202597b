// SPDX-License-Identifier: Apache-2.0
/**
 * Reads the declarations of a preprocessed C header: typedefs, structs, unions, enums and function prototypes. It supports
 * only the part of C that the CUDA headers use; anything else is an error that names the token.
 */
import type { Member, Parameter, TypeDeclaration } from "../src/abi.ts";

export interface Prototype {
  readonly name: string;
  readonly returns: string;
  readonly parameters: readonly Parameter[];
}

export interface Declarations {
  readonly types: TypeDeclaration[];
  readonly prototypes: Prototype[];
  /** Function-pointer typedefs named `PFN_…`: they carry the versions. */
  readonly pointers: Prototype[];
}

const tokenPattern =
  /\s*(?:([A-Za-z_]\w*)|(0[xX][0-9a-fA-F]+|\d+)[uUlL]*|('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(<<|>>|\.\.\.|[-+*/%&|^~!<>()[\]{};,=:?.]))/y;

function tokenize(source: string): string[] {
  const tokens: string[] = [];
  tokenPattern.lastIndex = 0;
  const text = source.trimEnd();
  while (tokenPattern.lastIndex < text.length) {
    const at = tokenPattern.lastIndex;
    const match = tokenPattern.exec(text);
    if (!match) throw new Error(`cannot read C near ${JSON.stringify(text.slice(at, at + 60))}`);
    tokens.push(match[1] ?? match[2] ?? match[3] ?? match[4] ?? "");
  }
  return tokens;
}

/** A declarator: the tokens around a declared name. */
interface Declarator {
  readonly name: string;
  /** Suffix of the type: `*`, `**`, `* const*`. */
  readonly pointers: string;
  readonly dimensions: number[];
  /** Present for `(*name)(…)` and `name(…)`. */
  readonly parameters?: Parameter[];
  readonly isPointerToFunction: boolean;
}

const scalarSizes: Readonly<Record<string, number>> = {
  char: 1,
  short: 2,
  int: 4,
  long: 8,
  float: 4,
  double: 8,
};
const specifierWords = new Set([
  "const",
  "unsigned",
  "signed",
  "char",
  "short",
  "int",
  "long",
  "float",
  "double",
  "void",
  "volatile",
]);

export class CParser {
  readonly #tokens: string[];
  #at = 0;
  readonly #enumValues = new Map<string, number>();
  readonly #enumNames = new Set<string>();
  readonly result: Declarations = { types: [], prototypes: [], pointers: [] };

  constructor(source: string) {
    this.#tokens = tokenize(source);
  }

  parse(): Declarations {
    while (this.#at < this.#tokens.length) this.#declaration();
    return this.result;
  }

  #peek(offset = 0): string {
    return this.#tokens[this.#at + offset] ?? "";
  }

  #next(): string {
    return this.#tokens[this.#at++] ?? "";
  }

  #accept(token: string): boolean {
    if (this.#peek() !== token) return false;
    this.#at++;
    return true;
  }

  #expect(token: string): void {
    if (!this.#accept(token)) {
      const context = this.#tokens.slice(Math.max(0, this.#at - 12), this.#at + 6).join(" ");
      throw new Error(`expected ${token} but found ${this.#peek()} in: ${context}`);
    }
  }

  #declaration(): void {
    this.#skipAttributes();
    if (this.#accept(";")) return;
    if (this.#accept("typedef")) return this.#typedef();
    const word = this.#peek();
    if ((word === "struct" || word === "union" || word === "enum") && this.#peek(2) === ";") {
      this.#at += 3; // forward declaration: handles carry their tags themselves
      return;
    }
    if (word === "struct" || word === "union" || word === "enum") {
      // `struct tag {…};` without a typedef
      const tag = this.#peek(1);
      this.#record(tag);
      this.#expect(";");
      return;
    }
    const base = this.#specifiers();
    const declared = this.#declarator();
    this.#skipAttributes();
    this.#expect(";");
    if (!declared.parameters) throw new Error(`${declared.name}: only functions are expected at top level`);
    this.result.prototypes.push({
      name: declared.name,
      returns: base + declared.pointers,
      parameters: declared.parameters,
    });
  }

  #skipAttributes(): void {
    for (;;) {
      if (this.#accept("extern") || this.#accept("__extension__")) continue;
      if (!this.#accept("__attribute__")) return;
      let depth = 0;
      do {
        const token = this.#next();
        if (token === "(") depth++;
        else if (token === ")") depth--;
        else if (token === "") throw new Error("attribute without end");
      } while (depth > 0);
    }
  }

  #typedef(): void {
    const word = this.#peek();
    if (word === "struct" || word === "union" || word === "enum") {
      const hasBody = this.#peek(1) === "{" || this.#peek(2) === "{";
      if (hasBody) {
        const tag = this.#peek(1) === "{" ? "" : this.#peek(1);
        this.#record(tag, true);
        this.#expect(";");
        return;
      }
      this.#next();
      const tag = this.#next();
      if (this.#accept("*")) {
        const name = this.#next();
        this.#expect(";");
        this.result.types.push({ kind: "handle", name, tag });
        return;
      }
      const name = this.#next();
      this.#expect(";");
      if (name !== tag) this.result.types.push({ kind: "alias", name, type: tag });
      return;
    }
    const base = this.#specifiers();
    const declared = this.#declarator();
    this.#expect(";");
    const type = base + declared.pointers;
    if (declared.isPointerToFunction) {
      const parameters = declared.parameters ?? [];
      if (declared.name.startsWith("PFN_"))
        this.result.pointers.push({ name: declared.name, returns: base, parameters });
      else this.result.types.push({ kind: "callback", name: declared.name, returns: base, parameters });
    } else if (declared.parameters || declared.dimensions.length > 0) {
      throw new Error(`typedef ${declared.name}: neither a scalar nor a pointer to a function`);
    } else {
      this.result.types.push({ kind: "alias", name: declared.name, type });
    }
  }

  /** A struct, union or enum with its body, in a typedef or alone; adds the declaration. */
  #record(tag: string, inTypedef = false): void {
    const kind = this.#next();
    if (tag !== "") this.#expect(tag);
    if (kind === "enum") {
      const values = this.#enumBody();
      const name = inTypedef ? this.#next() : tag;
      this.#enumNames.add(name);
      this.result.types.push({ kind: "enum", name, values });
      return;
    }
    const members = this.#members();
    this.#skipAttributes();
    const name = inTypedef ? this.#next() : tag;
    this.result.types.push({
      kind: kind === "struct" ? "struct" : "union",
      name,
      ...(tag !== "" && tag !== name ? { tag } : {}),
      members,
    });
  }

  #enumBody(): [string, number][] {
    this.#expect("{");
    const values: [string, number][] = [];
    let next = 0;
    while (!this.#accept("}")) {
      const name = this.#next();
      if (this.#accept("=")) next = this.#expression();
      values.push([name, next]);
      this.#enumValues.set(name, next);
      next++;
      if (!this.#accept(",")) {
        this.#expect("}");
        break;
      }
    }
    return values;
  }

  #members(): Member[] {
    this.#expect("{");
    const members: Member[] = [];
    while (!this.#accept("}")) {
      let align: number | undefined;
      if (this.#accept("_Alignas")) {
        this.#expect("(");
        align = this.#expression();
        this.#expect(")");
      }
      const word = this.#peek();
      if ((word === "struct" || word === "union") && (this.#peek(1) === "{" || this.#peek(2) === "{")) {
        this.#next();
        const tag = this.#peek() === "{" ? undefined : this.#next();
        const inner = this.#members();
        const name = this.#peek() === ";" ? undefined : this.#next();
        this.#expect(";");
        members.push({
          ...(name === undefined ? {} : { name }),
          record: { kind: word, ...(tag === undefined ? {} : { tag }), members: inner },
        });
        continue;
      }
      const base = this.#specifiers();
      do {
        const declared = this.#declarator();
        if (declared.parameters) throw new Error(`member ${declared.name}: function pointers need a typedef`);
        members.push({
          name: declared.name,
          type: base + declared.pointers,
          ...(declared.dimensions.length > 0 ? { dimensions: declared.dimensions } : {}),
          ...(align === undefined ? {} : { align }),
        });
      } while (this.#accept(","));
      this.#expect(";");
    }
    return members;
  }

  /** `const unsigned int`, `struct CUctx_st`, `CUdeviceptr`. */
  #specifiers(): string {
    const words: string[] = [];
    let hasType = false;
    for (;;) {
      const word = this.#peek();
      if (word === "struct" || word === "union" || word === "enum") {
        this.#next();
        words.push(this.#next());
        hasType = true;
      } else if (specifierWords.has(word)) {
        words.push(this.#next());
        if (word !== "const" && word !== "volatile") hasType = true;
      } else if (!hasType && /^[A-Za-z_]/.test(word)) {
        words.push(this.#next());
        hasType = true;
      } else {
        break;
      }
    }
    if (!hasType) throw new Error(`a type is missing before ${this.#peek()}`);
    // `char const` → `const char`, `unsigned` → `unsigned int`
    const isConst = words.includes("const");
    const plain = words.filter((w) => w !== "const").join(" ");
    const type = plain === "unsigned" ? "unsigned int" : plain;
    return isConst ? `const ${type}` : type;
  }

  #pointers(): string {
    let text = "";
    for (;;) {
      if (this.#accept("*")) text += "*";
      else if (this.#accept("const")) text += " const";
      else return text;
    }
  }

  #declarator(): Declarator {
    const pointers = this.#pointers();
    if (this.#peek() === "(" && this.#peek(1) === "*") {
      this.#next();
      this.#next();
      const name = this.#next();
      this.#expect(")");
      return { name, pointers, dimensions: [], parameters: this.#parameters(), isPointerToFunction: true };
    }
    const name = /^[A-Za-z_]/.test(this.#peek()) ? this.#next() : "";
    if (this.#peek() === "(") {
      return { name, pointers, dimensions: [], parameters: this.#parameters(), isPointerToFunction: false };
    }
    const dimensions: number[] = [];
    while (this.#accept("[")) {
      dimensions.push(this.#expression());
      this.#expect("]");
    }
    return { name, pointers, dimensions, isPointerToFunction: false };
  }

  #parameters(): Parameter[] {
    this.#expect("(");
    const parameters: Parameter[] = [];
    if (this.#peek() === "void" && this.#peek(1) === ")") this.#next();
    while (!this.#accept(")")) {
      const base = this.#specifiers();
      const declared = this.#declarator();
      // An array parameter is a pointer.
      const type = base + declared.pointers + (declared.dimensions.length > 0 ? "*" : "");
      parameters.push({ type, name: declared.name || `argument${parameters.length + 1}` });
      if (!this.#accept(",")) {
        this.#expect(")");
        break;
      }
    }
    return parameters;
  }

  /** Constant expressions with the usual precedence of `|`, shifts, sums and unary operators. */
  #expression(): number {
    let value = this.#shift();
    while (this.#accept("|")) value |= this.#shift();
    return value;
  }

  #shift(): number {
    let value = this.#sum();
    for (;;) {
      if (this.#accept("<<")) value = value * 2 ** this.#sum();
      else if (this.#accept(">>")) value = Math.floor(value / 2 ** this.#sum());
      else return value;
    }
  }

  #sum(): number {
    let value = this.#unary();
    for (;;) {
      if (this.#accept("+")) value += this.#unary();
      else if (this.#accept("-")) value -= this.#unary();
      else return value;
    }
  }

  #unary(): number {
    if (this.#accept("-")) return -this.#unary();
    if (this.#accept("~")) return ~this.#unary();
    if (this.#accept("(")) {
      const value = this.#expression();
      this.#expect(")");
      return value;
    }
    const token = this.#next();
    if (token === "sizeof") {
      this.#expect("(");
      const type = this.#specifiers() + this.#pointers();
      this.#expect(")");
      const size = type.endsWith("*") ? 8 : this.#enumNames.has(type) ? 4 : scalarSizes[type];
      if (size === undefined) throw new Error(`sizeof(${type}) is not known to the parser`);
      return size;
    }
    if (/^'.'$/.test(token)) return token.charCodeAt(1);
    if (/^\d/.test(token)) return Number(token);
    const known = this.#enumValues.get(token);
    if (known === undefined) throw new Error(`${token} is not a constant`);
    return known;
  }
}
