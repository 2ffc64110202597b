// SPDX-License-Identifier: Apache-2.0

/** One column of a table. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (item: T) => string;
  /** Right-aligned columns hold numbers. Default: left. */
  readonly align?: "left" | "right";
  /** Shown with `-o wide` only. */
  readonly isWide?: boolean;
  /** The time to which the cell is relative, Unix seconds, so that it can be shown as a date; 0: none. */
  readonly at?: (item: T) => bigint;
}

const gap = "   ";

/** Widths of a table's columns, so that later rows line up. */
export type Widths = readonly number[];

/** Lays out rows as kubectl does: titles in capitals, three spaces between columns, no borders. */
export function layOut<T>(
  columns: readonly Column<T>[],
  items: readonly T[],
  options: { readonly headers: boolean; readonly widths?: Widths | undefined },
): { readonly lines: readonly string[]; readonly widths: Widths } {
  const rows = items.map((item) => columns.map((column) => column.cell(item)));
  if (options.headers) rows.unshift(columns.map((column) => column.title));
  const widths = columns.map((_, index) =>
    Math.max(options.widths?.[index] ?? 0, ...rows.map((row) => row[index]?.length ?? 0)),
  );
  const lines = rows.map((row) =>
    row
      .map((cell, index) => {
        const width = widths[index] ?? 0;
        return columns[index]?.align === "right" ? cell.padStart(width) : cell.padEnd(width);
      })
      .join(gap)
      .trimEnd(),
  );
  return { lines, widths };
}

/** `Name:   value` lines, values aligned; values of several lines are indented. */
export function layOutFields(fields: readonly (readonly [string, string])[]): string {
  const width = Math.max(...fields.map(([name]) => name.length)) + 1;
  return fields
    .map(([name, value]) => {
      const [first = "", ...more] = value.split("\n");
      return [`${`${name}:`.padEnd(width)}${gap}${first}`.trimEnd(), ...more.map((line) => `  ${line}`)].join(
        "\n",
      );
    })
    .join("\n");
}
