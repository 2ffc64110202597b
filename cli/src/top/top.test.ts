// SPDX-License-Identifier: Apache-2.0

import { create } from "@bufbuild/protobuf";
import { DeviceHealth, NodeSchema, NodeState } from "@millpond/api";
import { describe, expect, test } from "vitest";
import { bar, clean, fit } from "./cells.ts";
import { draw, fitted, roomFor } from "./picture.ts";
import { type Key, orderOf, press, startState, type TopState } from "./state.ts";
import { deviceRows, type Rows } from "./views.ts";

const size = { columns: 80, lines: 24 };
const room = roomFor(size);

/** A pool of `nodes` nodes with eight devices each; the last device of each node is the busiest. */
function poolOf(nodes: number, change: { name?: string; state?: NodeState; card?: object } = {}): Rows {
  return deviceRows(
    Array.from({ length: nodes }, (_, node) =>
      create(NodeSchema, {
        name: `node-${node}`,
        state: change.state ?? NodeState.READY,
        devices: Array.from({ length: 8 }, (_unused, index) => ({
          node: `node-${node}`,
          index,
          name: change.name ?? "NVIDIA H200",
          health: DeviceHealth.HEALTHY,
          memoryBytes: 2n ** 37n,
          allocatedMemoryBytes: 2n ** 36n,
          usedMemoryBytes: 2n ** 35n,
          allocatedComputePercent: 50,
          usedComputePercent: index,
          ...(change.card === undefined ? {} : { card: change.card }),
        })),
      }),
    ),
  );
}

function pictureOf(rows: Rows, state: TopState, trouble?: string): string[] {
  const shown = { rows, state, details: undefined, trouble, where: "https://pool:7170" };
  return draw(shown, size).map(({ text }) => text);
}

function pressAll(state: TopState, rows: Rows, ...keys: readonly Key[]): TopState {
  return keys.reduce((before, key) => press(before, key, rows, room), state);
}

const keys = (...names: string[]): readonly Key[] => names.map((name) => ({ name, sequence: name }));

describe("the picture", () => {
  test("is as large as the screen, and of 10,000 devices only those are made that are seen", () => {
    const rows = poolOf(1250);
    let made = 0;
    const [first, ...rest] = rows.columns;
    if (first === undefined) throw new Error("there are no columns");
    const counted = { ...first, cell: (row: number) => ((made += 1), first.cell(row)) };
    const lines = pictureOf({ ...rows, columns: [counted, ...rest] }, startState("devices", ""));
    expect(lines.map((line) => line.length)).toEqual(Array.from({ length: 24 }, () => 80));
    expect(made).toBe(room);
    expect(lines[1]).toContain("10000 devices");
    expect(lines.at(-1)).toContain("? help");
  });

  test("marks the chosen line and the sorted column without colour, and the busiest come first", () => {
    const lines = pictureOf(poolOf(2), startState("devices", ""));
    expect(lines[2]).toContain(">USED");
    expect(lines[3]).toMatch(/^> node-0\/7 /);
    expect(lines[4]).toMatch(/^ {2}node-1\/7 /);
    expect(lines[3]).toMatch(/#---\.\.\.\. +7% +50% +25% 32GiB +50% /);
  });

  test("has temperature, power and clock of cards where they are known and there is room", () => {
    const card = { temperatureCelsius: 41, powerMilliwatts: 90_250, powerLimitMilliwatts: 700_000 };
    const rows = poolOf(1, { card: { ...card, smClockMhz: 1980 } });
    const state = startState("devices", "");
    const at = (columns: number) =>
      draw({ rows, state, details: undefined, trouble: undefined, where: "" }, { columns, lines: 24 }).map(
        ({ text }) => text,
      );
    expect(at(101)[2]).toMatch(/STATE +TEMP +POWER +SM MHZ$/);
    expect(at(101)[3]).toMatch(/ OK +41C +90\/700W +1980$/);
    expect(at(94)[3]).toMatch(/ OK +41C +90\/700W$/);
    expect(at(80)[2]).toMatch(/STATE$/);
    expect(pictureOf(poolOf(1), state)[2]).not.toContain("TEMP");
    // No key sorts by a column that is not shown.
    const sorted = pressAll(state, fitted(rows, size), ...keys(...Array.from({ length: 30 }, () => "s")));
    expect(sorted.sort.devices.column).toBeLessThan(9);
  });

  test("of a node that is silent says that nothing is known", () => {
    const lines = pictureOf(poolOf(1, { state: NodeState.NOT_READY }), startState("devices", ""));
    expect(lines[3]).toMatch(/\?\?\?\?\.\.\.\. +\? +50% .*Unkn/);
  });

  test("says how old it is when the pool cannot be asked", () => {
    const lines = pictureOf(poolOf(1), startState("devices", ""), "12 s old: the controller does not answer");
    expect(lines.at(-2)).toContain("12 s old");
  });

  test("lets no name of others reach the terminal with control characters", () => {
    const lines = pictureOf(poolOf(1, { name: "\x1b]0;owned\x07\u202eH200" }), startState("devices", ""));
    expect(lines.join("")).not.toMatch(/[\p{Cc}\u202e]/u);
  });
});

describe("keys", () => {
  const rows = poolOf(100);

  test("move the choice, which stays on its device wherever that is sorted to", () => {
    const down = pressAll(startState("devices", ""), rows, ...keys("down", "down", "pagedown"));
    expect(pictureOf(rows, down).filter((line) => line.startsWith("> "))).toHaveLength(1);
    const sorted = pressAll(down, rows, ...keys("s", "r"));
    expect(sorted.chosen).toBe(down.chosen);
    const end = pressAll(down, rows, ...keys("end", "down"));
    expect(pictureOf(rows, end)[2 + room]).toMatch(/^> /);
    expect(pressAll(end, rows, ...keys("home")).top).toBe(0);
  });

  test("filter by what is typed, also letters that are keys, and Esc shows all again", () => {
    const typed = pressAll(
      startState("devices", ""),
      rows,
      ...keys("/", ..."node-42/q".split(""), "backspace"),
    );
    expect(typed.isDone).toBe(false);
    const filtered = press(typed, { name: "return" }, rows, room);
    expect(orderOf(rows, filtered)).toHaveLength(8);
    expect(orderOf(rows, press(filtered, { name: "escape" }, rows, room))).toHaveLength(800);
    expect(pictureOf(rows, { ...filtered, filter: "nothing" })[3]).toContain("none contains it");
  });

  test("show other views, details and help, pause and end", () => {
    const start = startState("devices", "");
    expect(pressAll(start, rows, ...keys("3")).view).toBe("sessions");
    expect(pressAll(start, rows, { name: "tab", shift: true }).view).toBe("queues");
    const details = pressAll(start, rows, ...keys("return"));
    expect([details.page, details.chosen]).toEqual(["details", "node-0/7"]);
    expect(pressAll(details, rows, ...keys("escape")).page).toBe("table");
    expect(pressAll(start, rows, ...keys("?")).page).toBe("help");
    expect(pressAll(start, rows, ...keys("p")).isPaused).toBe(true);
    expect(pressAll(start, rows, ...keys("q")).isDone).toBe(true);
    expect(press({ ...start, typed: "x" }, { name: "c", ctrl: true }, rows, room).isDone).toBe(true);
  });
});

test("cells have exactly their width, wide characters and cuts included", () => {
  expect(fit("abc", 5)).toBe("abc  ");
  expect(fit("abc", 5, "right")).toBe("  abc");
  expect(fit("abcdef", 4)).toBe("abc~");
  expect(fit("gpu-node-1249/7", 8, "left", "end")).toBe("~-1249/7");
  expect(fit("abc", 4, "left", "end")).toBe("abc ");
  expect(fit("池塘池塘", 4, "left", "end")).toBe("~塘 ");
  expect(fit("池塘", 5)).toBe("池塘 ");
  expect(fit("池塘池塘", 4)).toBe("池~ ");
  expect(clean("a\x1bb")).toBe("a�b");
  expect(bar(0.5, 0.8, 10)).toBe("#####---..");
  expect(bar(undefined, 0.3, 10)).toBe("???.......");
  expect(bar(2, 1, 4)).toBe("####");
});
