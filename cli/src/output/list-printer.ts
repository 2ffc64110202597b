// SPDX-License-Identifier: Apache-2.0

import { formatTime } from "@millpond/api";
import { stringify } from "yaml";
import { renderJsonPath } from "./json-path.ts";
import type { Kind } from "./kinds.ts";
import { asObject, renderObject, renderObjectLine } from "./resources.ts";
import { type Column, layOut, type Widths } from "./table.ts";

export type ListFormat = "table" | "wide" | "name" | "json" | "yaml" | `jsonpath=${string}`;

export interface PrinterOptions {
  readonly format: ListFormat;
  readonly hasHeaders: boolean;
  /** Dates in place of ages. */
  readonly isAbsolute: boolean;
}

/** Writes objects of one kind to standard output: as one list, or each change of a watch. */
export class ListPrinter<T> {
  readonly #kind: Kind<T>;
  readonly #options: PrinterOptions;
  /** The last printed state, by name. */
  readonly #shown = new Map<string, { readonly item: T; readonly text: string }>();
  #widths: Widths | undefined;

  constructor(kind: Kind<T>, options: PrinterOptions) {
    this.#kind = kind;
    this.#options = options;
  }

  /** Prints a list. */
  printAll(items: readonly T[]): void {
    const { title, toJson, plural, word } = this.#kind;
    const { format } = this.#options;
    const members = { items: items.map(toJson) };
    if (format === "json") {
      process.stdout.write(renderObject(`${title}List`, members));
    } else if (format === "yaml") {
      process.stdout.write(stringify(asObject(`${title}List`, members)));
    } else if (format.startsWith("jsonpath=")) {
      this.#printPath(asObject(`${title}List`, members));
    } else if (items.length === 0 && format !== "name") {
      process.stderr.write(`no ${plural ?? `${word}s`}\n`);
    } else {
      this.#printRows(items);
    }
  }

  /** Prints a single object: in JSON the object itself, not a list of one. */
  printOne(item: T): void {
    const { title, toJson } = this.#kind;
    const { format } = this.#options;
    if (format === "json") process.stdout.write(renderObject(title, toJson(item)));
    else if (format === "yaml") process.stdout.write(stringify(asObject(title, toJson(item))));
    else if (format.startsWith("jsonpath=")) this.#printPath(asObject(title, toJson(item)));
    else this.#printRows([item]);
  }

  /** Prints changes: of the selected items, and of items that were selected earlier. */
  printChanges(items: readonly T[], selected: readonly T[]): void {
    const { nameOf, toJson } = this.#kind;
    const names = new Set(selected.map(nameOf));
    const others = items.filter((item) => !names.has(nameOf(item)) && this.#shown.has(nameOf(item)));
    const changed = [...selected, ...others].filter((item) => {
      const text = JSON.stringify(toJson(item));
      if (this.#shown.get(nameOf(item))?.text === text) return false;
      this.#shown.set(nameOf(item), { item, text });
      return true;
    });
    this.#printStream(changed, {});
  }

  /** Names of printed items that are not among these. */
  shownBeside(names: ReadonlySet<string>): readonly string[] {
    return [...this.#shown.keys()].filter((name) => !names.has(name));
  }

  /** Prints the end of an item: its last state, or, if unknown, only that it is gone. */
  printEnd(name: string, final: T | undefined): void {
    const before = this.#shown.get(name);
    this.#shown.delete(name);
    if (before === undefined) return;
    if (final !== undefined) {
      this.#printStream([final], {});
    } else if (isTable(this.#options.format)) {
      process.stdout.write(`${this.#kind.word}/${name} is gone\n`);
    } else {
      this.#printStream([before.item], { gone: true });
    }
  }

  #printStream(items: readonly T[], more: object): void {
    const { title, toJson } = this.#kind;
    const { format } = this.#options;
    if (isTable(format) || format === "name") {
      if (items.length > 0) this.#printRows(items);
      return;
    }
    for (const item of items) {
      const members = { ...toJson(item), ...more };
      if (format === "json") process.stdout.write(renderObjectLine(title, members));
      else if (format === "yaml") process.stdout.write(`---\n${stringify(asObject(title, members))}`);
      else this.#printPath(asObject(title, members));
    }
  }

  #printPath(object: object): void {
    process.stdout.write(`${renderJsonPath(this.#options.format.slice("jsonpath=".length), object)}\n`);
  }

  #printRows(items: readonly T[]): void {
    const { word, nameOf } = this.#kind;
    const { format, isAbsolute, hasHeaders } = this.#options;
    if (format === "name") {
      for (const item of items) process.stdout.write(`${word}/${nameOf(item)}\n`);
      return;
    }
    const isWide = format === "wide";
    const columns = this.#kind
      .columns({ nowSeconds: Math.floor(Date.now() / 1000), isWide })
      .filter((column) => isWide || column.isWide !== true)
      .map((column) => (isAbsolute ? withDates(column) : column));
    const before = this.#widths;
    const { widths } = layOut(columns, items, { headers: hasHeaders, widths: before });
    this.#widths = widths;
    // A wider row would not line up with the printed titles, so the titles are printed again.
    const isWider = before === undefined || widths.some((width, index) => width > (before[index] ?? 0));
    const { lines } = layOut(columns, items, { headers: hasHeaders && isWider, widths });
    process.stdout.write(`${lines.join("\n")}\n`);
  }
}

function isTable(format: ListFormat): boolean {
  return format === "table" || format === "wide";
}

/** Returns the column with dates in place of times since, or until, a moment. */
function withDates<T>(column: Column<T>): Column<T> {
  const { at, title } = column;
  if (at === undefined) return column;
  return {
    ...column,
    title: absoluteTitles[title] ?? title,
    cell: (item) => (at(item) === 0n ? "-" : formatTime(at(item))),
  };
}

/** Titles of columns when they show dates in place of times since, or until, a moment. */
const absoluteTitles: Readonly<Record<string, string>> = { AGE: "SINCE", LEFT: "ENDS", LEASE: "LEASE-ENDS" };
