// SPDX-License-Identifier: Apache-2.0

// The user's choices in `millpond top`, and how each key changes them. Pure functions.

import { type Rows, type ViewName, viewNames } from "./views.ts";

export interface Size {
  readonly columns: number;
  readonly lines: number;
}

export interface TopState {
  readonly view: ViewName;
  /** Column by which the view is sorted, and whether in reverse order. */
  readonly sort: Readonly<Record<ViewName, { readonly column: number; readonly isReversed: boolean }>>;
  readonly filter: string;
  /** The filter while the user types it; undefined: the user is not typing one. */
  readonly typed: string | undefined;
  /** Name of the selected row, which stays selected when the order changes; empty: the first row. */
  readonly chosen: string;
  /** First row on the screen. */
  readonly top: number;
  /** The table, or the page shown in its place. */
  readonly page: "table" | "details" | "help";
  readonly detailsTop: number;
  readonly isPaused: boolean;
  readonly isDone: boolean;
}

export function startState(view: ViewName, filter: string): TopState {
  return {
    view,
    // Busiest devices and sessions first, claims and queues by name.
    sort: {
      devices: { column: 3, isReversed: false },
      claims: { column: 0, isReversed: false },
      sessions: { column: 4, isReversed: false },
      queues: { column: 0, isReversed: false },
    },
    filter,
    typed: undefined,
    chosen: "",
    top: 0,
    page: "table",
    detailsTop: 0,
    isPaused: false,
    isDone: false,
  };
}

/** A key as Node's readline reports it. */
export interface Key {
  /** `up`, `pagedown`, `return`, `a`. */
  readonly name?: string | undefined;
  /** The characters that it produces. */
  readonly sequence?: string | undefined;
  readonly ctrl?: boolean | undefined;
  readonly shift?: boolean | undefined;
}

/** Returns the filtered rows in the order in which they are shown. */
export function orderOf(rows: Rows, state: TopState): readonly number[] {
  const wanted = state.filter.toLowerCase();
  const { column, isReversed } = state.sort[state.view];
  const key = rows.columns[column]?.key ?? (() => 0);
  const shown: { row: number; key: number | string }[] = [];
  for (let row = 0; row < rows.count; row += 1) {
    if (wanted === "" || rows.textOf(row).toLowerCase().includes(wanted)) shown.push({ row, key: key(row) });
  }
  shown.sort((a, b) => compare(a.key, b.key) || a.row - b.row);
  if (isReversed) shown.reverse();
  return shown.map(({ row }) => row);
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return b - a;
  const [left, right] = [String(a), String(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Returns the position of the selected row in an order; the first position if the row is gone. */
export function placeOf(rows: Rows, order: readonly number[], state: TopState): number {
  const place = order.findIndex((row) => rows.nameOf(row) === state.chosen);
  return Math.max(place, 0);
}

/** Returns the state after a key. `room`: the number of rows that fit on the screen. */
export function press(state: TopState, key: Key, rows: Rows, room: number): TopState {
  const { name = "", sequence = "" } = key;
  if (key.ctrl === true && (name === "c" || name === "d")) return { ...state, isDone: true };
  if (state.typed !== undefined) return type(state, state.typed, key);
  if (state.page === "help") return { ...state, page: "table" };
  if (sequence === "?" || name === "h" || name === "f1") return { ...state, page: "help" };
  if (name === "q") return { ...state, isDone: true };
  if (sequence === " " || name === "p") return { ...state, isPaused: !state.isPaused };
  if (state.page === "details") return pressInDetails(state, key, room);
  const view = viewNames[Number(sequence) - 1];
  if (view !== undefined) return showView(state, view);
  if (name === "tab") {
    const step = key.shift === true ? viewNames.length - 1 : 1;
    const next = viewNames[(viewNames.indexOf(state.view) + step) % viewNames.length] ?? state.view;
    return showView(state, next);
  }
  if (sequence === "/") return { ...state, typed: state.filter };
  if (name === "escape") return { ...state, filter: "" };
  if (name === "s") return sortBy(state, rows, key.shift === true ? -1 : 1);
  if (name === "r") {
    const { column, isReversed } = state.sort[state.view];
    return { ...state, sort: { ...state.sort, [state.view]: { column, isReversed: !isReversed } } };
  }
  if (name === "return" || name === "enter") {
    return rows.count === 0
      ? state
      : { ...state, page: "details", detailsTop: 0, ...choose(state, rows, 0, room) };
  }
  const step = stepOf(key, room);
  return step === undefined ? state : { ...state, ...choose(state, rows, step, room) };
}

function showView(state: TopState, view: ViewName): TopState {
  return { ...state, view, chosen: "", top: 0 };
}

function type(state: TopState, typed: string, { name = "", sequence = "", ctrl }: Key): TopState {
  if (name === "return" || name === "enter") return { ...state, typed: undefined, filter: typed };
  if (name === "escape") return { ...state, typed: undefined };
  if (name === "backspace") return { ...state, typed: Array.from(typed).slice(0, -1).join("") };
  if (ctrl === true && name === "u") return { ...state, typed: "" };
  const isText = ctrl !== true && sequence !== "" && !/\p{Cc}/u.test(sequence);
  return isText ? { ...state, typed: typed + sequence } : state;
}

function pressInDetails(state: TopState, key: Key, room: number): TopState {
  if (key.name === "escape" || key.name === "return" || key.name === "left" || key.name === "backspace") {
    return { ...state, page: "table" };
  }
  const step = stepOf(key, room);
  return step === undefined ? state : { ...state, detailsTop: Math.max(state.detailsTop + step, 0) };
}

function sortBy(state: TopState, rows: Rows, step: number): TopState {
  const count = rows.columns.length;
  const column = (state.sort[state.view].column + step + count) % count;
  return { ...state, sort: { ...state.sort, [state.view]: { column, isReversed: false } } };
}

/** Returns the number of rows that a key moves down. */
function stepOf({ name = "", sequence = "", shift }: Key, room: number): number | undefined {
  if (name === "home" || (name === "g" && shift !== true)) return -Infinity;
  if (name === "end" || sequence === "G") return Infinity;
  switch (name) {
    case "up":
    case "k":
      return -1;
    case "down":
    case "j":
      return 1;
    case "pageup":
      return -room;
    case "pagedown":
      return room;
    default:
      return undefined;
  }
}

function choose(state: TopState, rows: Rows, step: number, room: number): Pick<TopState, "chosen" | "top"> {
  const order = orderOf(rows, state);
  const place = Math.min(Math.max(placeOf(rows, order, state) + step, 0), Math.max(order.length - 1, 0));
  const row = order[place];
  return { chosen: row === undefined ? "" : rows.nameOf(row), top: scrolledTo(place, state.top, room) };
}

/** Returns the first row of the screen such that a position is visible. */
export function scrolledTo(place: number, top: number, room: number): number {
  if (place < top) return place;
  return place >= top + room ? place - room + 1 : top;
}
