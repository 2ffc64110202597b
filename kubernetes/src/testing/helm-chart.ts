// SPDX-License-Identifier: Apache-2.0

// Renders the chart as Helm would: supports only the parts of Go's templates that the chart uses, and fails
// for all others.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
import { parse, parseAllDocuments, stringify } from "yaml";
import type { KubernetesObject } from "@kubernetes/client-node";

export const chartDirectory = join(import.meta.dirname, "..", "..", "chart");

type Values = Readonly<Record<string, unknown>>;

export interface RenderOptions {
  /** Values that override those of values.yaml, member by member. */
  readonly values?: Values;
  readonly namespace?: string;
  /** Minor version of Kubernetes: 20 for 1.20. Default 36. */
  readonly minor?: number;
}

/** The minor versions that introduced versions of groups. */
const groupsSince: Readonly<Record<string, number>> = { "resource.k8s.io/v1": 34 };

/** The rules of values.schema.json. */
export function valueRules(): object {
  return JSON.parse(readFileSync(join(chartDirectory, "values.schema.json"), "utf8")) as object;
}

/**
 * All objects of the chart.
 *
 * @throws if the values break a rule of values.schema.json
 */
export function renderChart(options: RenderOptions = {}): KubernetesObject[] {
  const defaults = parse(readFileSync(join(chartDirectory, "values.yaml"), "utf8")) as Values;
  const { minor = 36 } = options;
  const values = merge(defaults, options.values ?? {});
  const ajv = new Ajv({ allErrors: true, allowUnionTypes: true });
  if (!ajv.validate(valueRules(), values)) throw new Error(ajv.errorsText(ajv.errors, { dataVar: "values" }));
  const chart = parse(readFileSync(join(chartDirectory, "Chart.yaml"), "utf8")) as { appVersion: string };
  const root = {
    Values: values,
    Release: { Namespace: options.namespace ?? "millpond-system" },
    Chart: { AppVersion: chart.appVersion },
    Capabilities: {
      KubeVersion: { Version: `v1.${minor}.0` },
      APIVersions: { Has: (api: unknown) => minor >= required(groupsSince[String(api)], String(api)) },
    },
  };
  return templates().flatMap((text) =>
    parseAllDocuments(render(text, root))
      .map((document) => {
        const [error] = document.errors;
        if (error !== undefined) throw error;
        return document.toJS() as KubernetesObject | null;
      })
      .filter((object) => object !== null),
  );
}

/** The values that templates have read: `image.tag`. */
export function usedValues(): string[] {
  const found = templates().flatMap((text) =>
    [...text.matchAll(/\.Values\.([\w.]+)/g)].map(([, path]) => path ?? ""),
  );
  return [...new Set(found)].sort();
}

function templates(): string[] {
  const directory = join(chartDirectory, "templates");
  return readdirSync(directory)
    .sort()
    .map((file) => readFileSync(join(directory, file), "utf8"));
}

function merge(base: Values, over: Values): Values {
  const isTree = (value: unknown): value is Values =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  const merged: Record<string, unknown> = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const below = base[key];
    merged[key] = isTree(below) && isTree(value) ? merge(below, value) : value;
  }
  return merged;
}

/** An open `if` or `with`. */
interface Block {
  readonly isShown: boolean;
  readonly wasTaken: boolean;
  readonly dot: unknown;
}

function render(text: string, root: Values): string {
  const blocks: Block[] = [{ isShown: true, wasTaken: true, dot: root }];
  const top = (): Block => blocks.at(-1) ?? { isShown: false, wasTaken: true, dot: undefined };
  let out = "";
  // `{{-` removes the white space before it.
  for (const part of text.split(/(\s*\{\{-.*?\}\}|\{\{.*?\}\})/)) {
    const action = /^\s*\{\{-?\s*(.*?)\s*\}\}$/.exec(part)?.[1];
    if (action === undefined) {
      if (top().isShown) out += part;
      continue;
    }
    const [word = ""] = action.split(" ");
    const { isShown, wasTaken, dot } = top();
    if (word === "if" || word === "with") {
      const value = isShown ? evaluate(action.slice(word.length), dot) : undefined;
      const isTaken = isShown && isTrue(value);
      blocks.push({ isShown: isTaken, wasTaken: isTaken || !isShown, dot: word === "with" ? value : dot });
    } else if (word === "else" && action === "else" && blocks.length > 1) {
      blocks.pop();
      blocks.push({ isShown: !wasTaken, wasTaken: true, dot });
    } else if (action === "end" && blocks.length > 1) blocks.pop();
    else if (isShown) out += String(evaluate(action, dot));
  }
  if (blocks.length !== 1) throw new Error(`${blocks.length - 1} blocks are not ended`);
  return out;
}

const functions: Readonly<Record<string, (...args: readonly unknown[]) => unknown>> = {
  and: (...args) => args.find((arg) => !isTrue(arg)) ?? args.at(-1),
  semverCompare: (constraint, version) => {
    const [, least] = /^>=1\.(\d+)-0$/.exec(String(constraint)) ?? [];
    const [, minor] = /^v1\.(\d+)\.\d+$/.exec(String(version)) ?? [];
    return Number(required(minor, String(version))) >= Number(required(least, String(constraint)));
  },
  not: (value) => !isTrue(value),
  ne: (a, b) => a !== b,
  quote: (value) => JSON.stringify(String(value)),
  default: (fallback, value) => (isTrue(value) ? value : fallback),
  toYaml: (value) => stringify(value).trimEnd(),
  nindent: (count, text) =>
    String(text)
      .split("\n")
      .map((line) => `\n${" ".repeat(Number(count))}${line}`)
      .join(""),
};

/** As Go prints it. */
function isTrue(value: unknown): boolean {
  return !(value === undefined || value === null || value === false || value === 0 || value === "");
}

function evaluate(expression: string, dot: unknown): unknown {
  const tokens = expression.match(/"[^"]*"|[()|]|[^\s()|]+/g) ?? [];
  let position = 0;
  const operand = (): unknown => {
    const token = tokens[position++] ?? "";
    if (token === "(") {
      const value = pipeline();
      if (tokens[position++] !== ")") throw new Error(`${expression}: a bracket is missing`);
      return value;
    }
    if (token.startsWith('"')) return token.slice(1, -1);
    if (/^\d+$/.test(token)) return Number(token);
    if (token === ".") return dot;
    if (!token.startsWith(".")) return required(functions[token], token);
    return token
      .slice(1)
      .split(".")
      .reduce((value, key) => required((value as Values | undefined)?.[key], token), dot);
  };
  const command = (piped?: unknown): unknown => {
    const first = operand();
    const args: unknown[] = [];
    while (position < tokens.length && tokens[position] !== "|" && tokens[position] !== ")")
      args.push(operand());
    if (piped !== undefined) args.push(piped);
    if (typeof first === "function") return (first as (...values: unknown[]) => unknown)(...args);
    if (args.length > 0) throw new Error(`${expression}: what is called is no function`);
    return first;
  };
  const pipeline = (): unknown => {
    let value = command();
    while (tokens[position] === "|") {
      position += 1;
      value = command(value);
    }
    return value;
  };
  return pipeline();
}

function required<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new Error(`the chart uses ${name}, which is not there`);
  return value;
}
