// SPDX-License-Identifier: Apache-2.0

import { csvField } from "@millpond/api/browser";

export interface CsvColumn<T> {
  readonly title: string;
  readonly value: (item: T) => string | number | undefined;
}

export function toCsv<T>(columns: readonly CsvColumn<T>[], items: readonly T[]): string {
  const lines = [
    columns.map(({ title }) => csvField(title)),
    ...items.map((item) => columns.map(({ value }) => csvField(value(item)))),
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
