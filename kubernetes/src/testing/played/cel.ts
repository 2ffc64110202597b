// SPDX-License-Identifier: Apache-2.0

// The part of CEL in which the webhooks' match conditions are written: literals, members, `has`, `exists`,
// `startsWith`, `contains`, `in`, comparisons, and the logical operators, for which an error on one side is ignored if
// the other side decides.

type Scope = ReadonlyMap<string, unknown>;
type Evaluate = (scope: Scope) => unknown;

/**
 * Whether a condition holds.
 *
 * @throws for text outside this part of CEL, and for missing members
 */
export function holds(expression: string, variables: Readonly<Record<string, unknown>>): boolean {
  const value = parse(expression)(new Map(Object.entries(variables)));
  if (typeof value !== "boolean") throw new Error(`the condition is no truth: ${expression}`);
  return value;
}

const tokenPattern = /\s*(?:("(?:[^"\\]|\\.)*")|([A-Za-z_]\w*)|(\d+)|(\|\||&&|==|!=|[!?:.,()[\]{}]))/y;

const parsed = new Map<string, Evaluate>();

function parse(text: string): Evaluate {
  const known = parsed.get(text);
  if (known !== undefined) return known;
  const tokens: string[] = [];
  tokenPattern.lastIndex = 0;
  while (tokenPattern.lastIndex < text.trimEnd().length) {
    const at = tokenPattern.lastIndex;
    const match = tokenPattern.exec(text);
    if (match === null) throw new Error(`not CEL at ${at}: ${text}`);
    tokens.push(match[0].trim());
  }
  const parser = new Parser(tokens);
  const evaluate = parser.condition();
  parser.end();
  parsed.set(text, evaluate);
  return evaluate;
}

class Parser {
  readonly #tokens: readonly string[];
  #at = 0;

  constructor(tokens: readonly string[]) {
    this.#tokens = tokens;
  }

  end(): void {
    if (this.#at !== this.#tokens.length)
      throw new Error(`not CEL: ${this.#tokens.slice(this.#at).join(" ")}`);
  }

  condition(): Evaluate {
    const test = this.#or();
    if (!this.#take("?")) return test;
    const then = this.condition();
    this.#expect(":");
    const otherwise = this.condition();
    return (scope) => (truth(test(scope)) ? then(scope) : otherwise(scope));
  }

  #or(): Evaluate {
    let left = this.#and();
    while (this.#take("||")) left = decidedBy(true, left, this.#and());
    return left;
  }

  #and(): Evaluate {
    let left = this.#relation();
    while (this.#take("&&")) left = decidedBy(false, left, this.#relation());
    return left;
  }

  #relation(): Evaluate {
    const left = this.#unary();
    if (this.#take("in")) {
      const list = this.#unary();
      return (scope) => keysOf(list(scope)).includes(left(scope));
    }
    const isSame = this.#take("==");
    if (!isSame && !this.#take("!=")) return left;
    const right = this.#unary();
    return (scope) => equal(left(scope), right(scope)) === isSame;
  }

  #unary(): Evaluate {
    if (!this.#take("!")) return this.#postfix();
    const value = this.#unary();
    return (scope) => !truth(value(scope));
  }

  #postfix(): Evaluate {
    let value = this.#primary();
    while (this.#take(".")) {
      const name = this.#next();
      const object = value;
      value = this.#take("(") ? this.#method(object, name) : (scope) => member(object(scope), name);
    }
    return value;
  }

  #method(object: Evaluate, name: string): Evaluate {
    if (name === "exists") {
      const variable = this.#next();
      this.#expect(",");
      const body = this.condition();
      this.#expect(")");
      return (scope) => {
        const each = keysOf(object(scope));
        return each.some((value) => truth(body(new Map([...scope, [variable, value]]))));
      };
    }
    const argument = this.condition();
    this.#expect(")");
    if (name === "startsWith") return (scope) => textOf(object(scope)).startsWith(textOf(argument(scope)));
    if (name === "contains") return (scope) => textOf(object(scope)).includes(textOf(argument(scope)));
    throw new Error(`CEL has ${name}, and this part of it has not`);
  }

  #primary(): Evaluate {
    const token = this.#next();
    if (token === "(") {
      const value = this.condition();
      this.#expect(")");
      return value;
    }
    if (token === "[") return this.#list();
    if (token === "{") {
      this.#expect("}");
      return () => ({});
    }
    if (token === "null") return () => null;
    if (token.startsWith('"')) {
      const value = JSON.parse(token) as string;
      return () => value;
    }
    if (token === "has") return this.#has();
    if (!/^[A-Za-z_]/.test(token)) throw new Error(`not CEL: ${token}`);
    return (scope) => {
      if (!scope.has(token)) throw new Error(`there is no ${token}`);
      return scope.get(token);
    };
  }

  #list(): Evaluate {
    const values: Evaluate[] = [];
    while (!this.#take("]")) {
      values.push(this.condition());
      this.#take(",");
    }
    return (scope) => values.map((value) => value(scope));
  }

  /** Only the last member may be missing. */
  #has(): Evaluate {
    this.#expect("(");
    let object = this.#primary();
    this.#expect(".");
    let last = this.#next();
    while (this.#take(".")) {
      const [before, name] = [object, last];
      object = (scope) => member(before(scope), name);
      last = this.#next();
    }
    this.#expect(")");
    const [before, name] = [object, last];
    return (scope) => Object.hasOwn(objectOf(before(scope)), name);
  }

  #next(): string {
    const token = this.#tokens[this.#at];
    if (token === undefined) throw new Error("the condition ends too soon");
    this.#at += 1;
    return token;
  }

  #take(token: string): boolean {
    if (this.#tokens[this.#at] !== token) return false;
    this.#at += 1;
    return true;
  }

  #expect(token: string): void {
    if (!this.#take(token)) throw new Error(`${token} is missing before ${this.#tokens[this.#at]}`);
  }
}

/** `||` where `value` is true, `&&` where it is false. */
function decidedBy(value: boolean, left: Evaluate, right: Evaluate): Evaluate {
  return (scope) => {
    let failure: unknown;
    for (const side of [left, right]) {
      try {
        if (truth(side(scope)) === value) return value;
      } catch (error) {
        failure = error;
      }
    }
    if (failure !== undefined) throw failure;
    return !value;
  };
}

function truth(value: unknown): boolean {
  if (typeof value !== "boolean") throw new Error("no truth");
  return value;
}

function textOf(value: unknown): string {
  if (typeof value !== "string") throw new Error("no text");
  return value;
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw new Error("no object");
  return value as Readonly<Record<string, unknown>>;
}

function member(value: unknown, name: string): unknown {
  const object = objectOf(value);
  if (!Object.hasOwn(object, name)) throw new Error(`no such key: ${name}`);
  return object[name];
}

/** What `exists` and `in` iterate over: the values of a list, the keys of a map. */
function keysOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : Object.keys(objectOf(value));
}

function equal(a: unknown, b: unknown): boolean {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((each, index) => equal(each, b[index]));
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
  const [one, other] = [objectOf(a), objectOf(b)];
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && equal(one[key], other[key]))
  );
}
