// SPDX-License-Identifier: Apache-2.0

import { millpondError, quote } from "@millpond/api";

/** A row of a table, by column; knows where it stands, for errors. */
export interface Row {
  /** Number of its line in the file, from 1. */
  readonly line: number;
  /** @throws MILLPOND_E_INVALID when the table has no such column */
  text(column: string): string;
  /** Undefined: the table has no such column. */
  optionalText(column: string): string | undefined;
  /** @throws MILLPOND_E_INVALID unless it is a whole number from 0 to `most` */
  number(column: string, most: number): number;
}

const maxColumns = 64;

/**
 * Reads comma-separated values without quotes, the first line naming the columns.
 *
 * @param file its name, for errors
 * @throws MILLPOND_E_INVALID naming file and line
 */
export function parseCsv(text: string, file: string): Row[] {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  while (lines.at(-1) === "") {
    lines.pop();
  }
  const header = lines[0]?.split(",").map((name) => name.trim()) ?? [];
  if (header.length < 2 || header.length > maxColumns || header.some((name) => !/^\w+$/.test(name))) {
    throw invalid(file, 1, "the first line does not name columns, separated by commas");
  }
  const positions = new Map(header.map((name, position) => [name, position]));
  if (positions.size < header.length) {
    throw invalid(file, 1, "two columns have the same name");
  }
  return lines.slice(1).map((content, index) => {
    const line = index + 2;
    if (content.includes('"')) {
      throw invalid(file, line, "quoted values are not understood");
    }
    const cells = content.split(",");
    if (cells.length !== header.length) {
      throw invalid(file, line, `${cells.length} values for ${header.length} columns`);
    }
    const optionalText = (column: string): string | undefined => {
      const position = positions.get(column);
      return position === undefined ? undefined : cells[position]?.trim();
    };
    const needed = (column: string): string => {
      const cell = optionalText(column);
      if (cell === undefined) {
        throw invalid(file, 1, `there is no column ${column}`);
      }
      return cell;
    };
    return {
      line,
      text: needed,
      optionalText,
      number: (column, most) => {
        const cell = needed(column);
        const value = /^\d{1,15}(\.0+)?$/.test(cell) ? Number(cell) : -1;
        if (value < 0 || value > most) {
          throw invalid(file, line, `${column} is ${quote(cell)}, not a whole number from 0 to ${most}`);
        }
        return value;
      },
    };
  });
}

export function invalid(file: string, line: number, what: string): Error {
  return millpondError("MILLPOND_E_INVALID", `${file}, line ${line}: ${what}`);
}
