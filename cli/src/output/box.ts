// SPDX-License-Identifier: Apache-2.0

/** One bordered block: a line of titles and rows under it, cells separated by bars. */
export interface BoxSection {
  readonly titles: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Whether the cells of a column are aligned to the right. */
  readonly isRight?: readonly boolean[];
  /** Shown across the whole width when there are no rows. */
  readonly emptyText: string;
}

/** Draws a heading and sections as nvidia-smi does, as wide as the widest of them. */
export function drawBox(heading: readonly [string, string], sections: readonly BoxSection[]): string {
  const inner = Math.max(
    heading[0].length + heading[1].length + 4,
    ...sections.map((section) => naturalWidths(section).reduce((sum, width) => sum + width + 3, -3)),
    ...sections.map((section) => section.emptyText.length),
  );
  const lines = [rule([inner], "-"), row([`${heading[0]}${heading[1].padStart(inner - heading[0].length)}`])];
  for (const section of sections) lines.push(...drawSection(section, inner));
  return `${lines.join("\n")}\n`;
}

function drawSection(section: BoxSection, inner: number): string[] {
  const widths = naturalWidths(section);
  const spare = inner - widths.reduce((sum, width) => sum + width + 3, -3);
  const last = widths.length - 1;
  widths[last] = (widths[last] ?? 0) + spare;
  const align = (cells: readonly string[]): string[] =>
    widths.map((width, column) => {
      const cell = cells[column] ?? "";
      return section.isRight?.[column] ? cell.padStart(width) : cell.padEnd(width);
    });
  const body =
    section.rows.length === 0
      ? [row([section.emptyText.padEnd(inner)])]
      : section.rows.map((cells) => row(align(cells)));
  const end = section.rows.length === 0 ? rule([inner], "-") : rule(widths, "-");
  return [rule(widths, "-"), row(align(section.titles)), rule(widths, "="), ...body, end];
}

function naturalWidths(section: BoxSection): number[] {
  return section.titles.map((title, column) =>
    Math.max(title.length, ...section.rows.map((cells) => cells[column]?.length ?? 0)),
  );
}

function rule(widths: readonly number[], line: string): string {
  return `+${widths.map((width) => line.repeat(width + 2)).join("+")}+`;
}

function row(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}
