// SPDX-License-Identifier: Apache-2.0

export interface CsvColumn<T> {
  readonly title: string;
  readonly value: (item: T) => string | number | undefined;
}

/**
 * A text that begins like a formula would be run by a spreadsheet. Names chosen by others must not be, so the text gets a
 * leading apostrophe.
 */
function field(value: string | number | undefined): string {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function toCsv<T>(columns: readonly CsvColumn<T>[], items: readonly T[]): string {
  const lines = [
    columns.map(({ title }) => field(title)),
    ...items.map((item) => columns.map(({ value }) => field(value(item)))),
  ];
  return `${lines.map((line) => line.join(",")).join("\r\n")}\r\n`;
}

/** Makes the browser save a file. */
export function saveCsv<T>(name: string, columns: readonly CsvColumn<T>[], items: readonly T[]): void {
  const url = URL.createObjectURL(new Blob([toCsv(columns, items)], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `millpond-${name.toLowerCase()}.csv`;
  link.click();
  URL.revokeObjectURL(url);
}
