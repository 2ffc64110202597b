// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";

/** A row of a table, by column, with its position for error messages. */
export interface Row {
  /** Number of its line in the file, from 1. */
  readonly line: number;
  /** @throws MILLPOND_E_INVALID when the table has no such column */
  text(column: string): string;
  /** Undefined: the table has no such column. */
  optionalText(column: string): string | undefined;
  /** @throws MILLPOND_E_INVALID unless it is a whole number from 0 to `most` */
  number(column: string, most: number): number;
  /**
   * Rounded to a whole number.
   *
   * @throws MILLPOND_E_INVALID unless it is a number from 0 to `most`
   */
  quantity(column: string, most: number): number;
}

const maxColumns = 64;

/**
 * Parses comma-separated values; the first line names the columns. A quoted value may not continue on another line. Empty
 * lines are ignored.
 *
 * @param file its name, for errors
 * @throws MILLPOND_E_INVALID naming file and line
 */
export function parseCsv(text: string, file: string): Row[] {
  const [first = "", ...lines] = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const positions = new Map(parseHeader(first, file).map((name, position) => [name, position]));
  return lines.flatMap((content, index) =>
    content.trim() === "" ? [] : toRow(content, { file, line: index + 2, positions }),
  );
}

/**
 * The names of the columns; an empty name marks a column that is ignored.
 *
 * @throws MILLPOND_E_INVALID
 */
function parseHeader(line: string, file: string): string[] {
  const header = cellsOf(line.replace(/^\uFEFF/, ""), file, 1);
  const named = header.filter((name) => name !== "");
  if (named.length < 2 || header.length > maxColumns) {
    throw invalid(file, 1, "the first line does not name columns, separated by commas");
  }
  if (new Set(named).size < named.length) {
    throw invalid(file, 1, "two columns have the same name");
  }
  return header;
}

interface Place {
  readonly file: string;
  readonly line: number;
  /** Positions of the columns, by name. */
  readonly positions: ReadonlyMap<string, number>;
}

function toRow(content: string, { file, line, positions }: Place): Row {
  const cells = cellsOf(content, file, line);
  const columns = Math.max(...positions.values()) + 1;
  if (cells.length !== columns) {
    throw invalid(file, line, `${cells.length} values for ${columns} columns`);
  }
  const optionalText = (column: string): string | undefined => cells[positions.get(column) ?? -1];
  const text = (column: string): string => {
    const cell = optionalText(column);
    if (cell === undefined) {
      throw invalid(file, 1, `there is no column ${column}`);
    }
    return cell;
  };
  const parse = (column: string, most: number, form: RegExp, kind: string): number => {
    const cell = text(column);
    const value = form.test(cell) ? Number(cell) : -1;
    if (value < 0 || value > most) {
      throw invalid(file, line, `${column} is ${quote(cell)}, not a ${kind} from 0 to ${most}`);
    }
    return value;
  };
  return {
    line,
    text,
    optionalText,
    number: (column, most) => parse(column, most, /^\d{1,15}(\.0+)?$/, "whole number"),
    quantity: (column, most) => Math.round(parse(column, most, /^\d{1,15}(\.\d+)?$/, "number")),
  };
}

/** A quoted value, in which two quotes stand for one, or an unquoted value. */
const nextCell = /\s*(?:"((?:[^"]|"")*)"\s*|([^",]*))(,|$)/y;

function cellsOf(content: string, file: string, line: number): string[] {
  const cells: string[] = [];
  nextCell.lastIndex = 0;
  for (;;) {
    const match = nextCell.exec(content);
    if (match === null) {
      throw invalid(file, line, "a quote does not begin or end a value");
    }
    const [, quoted, plain = "", end] = match;
    cells.push((quoted?.replaceAll('""', '"') ?? plain).trim());
    if (end === "") {
      return cells;
    }
  }
}

export function invalid(file: string, line: number, what: string): Error {
  return millpondError("MILLPOND_E_INVALID", `${file}, line ${line}: ${what}`);
}
