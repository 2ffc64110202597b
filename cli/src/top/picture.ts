// SPDX-License-Identifier: Apache-2.0

// The screen of `millpond top`: exactly as many lines as it has, each of its full width. Only visible rows are rendered.

import { clean, fit } from "./cells.ts";
import { orderOf, placeOf, scrolledTo, type Size, type TopState } from "./state.ts";
import { type Rows, type Tone, type TopColumn, viewNames } from "./views.ts";

/** How a line is highlighted if colour is available. */
export type Style = Tone | "title" | "chosen" | "alarm";

export interface Line {
  readonly text: string;
  readonly style: Style;
}

/** The contents of the screen. */
export interface Shown {
  readonly rows: Rows;
  readonly state: TopState;
  /** Details of the selected object; undefined: not requested, or not received yet. */
  readonly details: string | undefined;
  /** Why the rows are old; undefined: they are current. */
  readonly trouble: string | undefined;
  /** Address of the pool, for the head. */
  readonly where: string;
}

/** Lines above and below the rows: head, summary, titles; trouble or filter, keys. */
const frameLines = 5;
const gap = " ";
const marker = 2;

/** Returns the number of rows that fit on the screen. */
export function roomFor({ lines }: Size): number {
  return Math.max(lines - frameLines, 1);
}

/** The rows without the extra columns that do not fit on the screen. */
export function fitted(rows: Rows, { columns: width }: Size): Rows {
  const columns = [...rows.columns];
  while (columns.at(-1)?.isExtra === true && leastWidth(columns) > width) columns.pop();
  return { ...rows, columns };
}

export function draw(all: Shown, size: Size): readonly Line[] {
  const shown = { ...all, rows: fitted(all.rows, size) };
  const { state } = shown;
  const body =
    state.page === "help"
      ? page(helpText, 0, size)
      : state.page === "details"
        ? page((shown.details ?? "asking ...").split("\n"), state.detailsTop, size)
        : table(shown, size);
  const lines: Line[] = [
    { text: head(shown), style: "title" },
    { text: shown.rows.summary, style: "plain" },
    ...body,
    status(shown),
    { text: keysOf(state), style: "dim" },
  ];
  return lines.slice(0, size.lines).map(({ text, style }) => ({ text: fit(text, size.columns), style }));
}

function head({ state, where }: Shown): string {
  const views = viewNames.map((name, index) =>
    name === state.view ? `[${index + 1} ${name}]` : ` ${index + 1} ${name} `,
  );
  return `millpond top  ${views.join(" ")}  ${where}`;
}

function status({ state, trouble }: Shown): Line {
  if (state.typed !== undefined) return { text: `filter: ${state.typed}_`, style: "alarm" };
  if (trouble !== undefined) return { text: trouble, style: "alarm" };
  const parts = [
    state.isPaused ? "paused: the lines are not refreshed" : "",
    state.filter === "" ? "" : `only lines with "${state.filter}" (Esc: all)`,
  ].filter((part) => part !== "");
  return { text: parts.join("; "), style: parts.length === 0 ? "plain" : "alarm" };
}

function keysOf({ typed, page: shown }: TopState): string {
  if (typed !== undefined) return "type a text that lines contain   Enter use it   Esc keep the old one";
  if (shown === "help") return "any key goes back";
  if (shown === "details") return "Up Down PgUp PgDn scroll   Esc back   Space pause   q quit";
  return "1-4 view  Up Down choose  Enter details  s sort  r reverse  / filter  ? help";
}

const helpText = [
  "1 2 3 4, Tab      devices, claims, sessions, queues",
  "Up Down, k j      choose a line          PgUp PgDn Home End   by pages",
  "Enter             details of the chosen line, Esc goes back",
  "s S               sort by the next column, by the one before (> marks it)",
  "r                 reverse the order",
  "/                 show only lines that contain a text, Esc shows all",
  "Space, p          pause                  q, Ctrl-C            quit",
  "",
  "COMPUTE of a device is a bar of its time: # used, - granted and not used,",
  ". free, ? granted and not measured: its node is silent, or a program has a",
  "software GPU for itself. USED is of the last seconds.",
];

function page(all: readonly string[], top: number, size: Size): Line[] {
  // One more line than in a table: there are no titles.
  const room = roomFor(size) + 1;
  const from = Math.min(top, Math.max(all.length - room, 0));
  const lines = all.slice(from, from + room).map((text): Line => ({ text: clean(text), style: "plain" }));
  return filled(lines, room);
}

function filled(lines: Line[], count: number): Line[] {
  while (lines.length < count) lines.push({ text: "", style: "plain" });
  return lines;
}

function table({ rows, state }: Shown, size: Size): Line[] {
  const room = roomFor(size);
  const widths = widthsFor(rows.columns, size.columns);
  const order = orderOf(rows, state);
  const place = placeOf(rows, order, state);
  const top = Math.min(scrolledTo(place, state.top, room), Math.max(order.length - room, 0));
  const sorted = state.sort[state.view].column;
  const titles = rows.columns.map(({ title, align }, index) =>
    fit(index === sorted ? `>${title}` : title, widths[index] ?? 0, align),
  );
  const lines: Line[] = [{ text: `${" ".repeat(marker)}${titles.join(gap)}`, style: "title" }];
  for (const [index, row] of order.slice(top, top + room).entries()) {
    const isChosen = top + index === place;
    const cells = rows.columns.map(({ cell, align, keep }, column) =>
      fit(cell(row), widths[column] ?? 0, align, keep),
    );
    lines.push({
      text: `${isChosen ? "> " : "  "}${cells.join(gap)}`,
      style: isChosen ? "chosen" : rows.toneOf(row),
    });
  }
  if (order.length === 0)
    lines.push({ text: `  ${state.filter === "" ? "there is none" : "none contains it"}`, style: "dim" });
  return filled(lines, room + 1);
}

/** Distributes the remaining width among the columns that grow. */
function widthsFor(columns: readonly TopColumn<number>[], width: number): readonly number[] {
  const least = leastWidth(columns);
  const growing = columns.filter(({ grows }) => grows === true).length;
  const more = growing === 0 ? 0 : Math.floor(Math.max(width - least, 0) / growing);
  return columns.map((column) => column.width + (column.grows === true ? more : 0));
}

function leastWidth(columns: readonly TopColumn<number>[]): number {
  return columns.reduce((sum, column) => sum + column.width, 0) + (columns.length - 1) * gap.length + marker;
}
