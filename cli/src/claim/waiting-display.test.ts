// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { WaitingDisplay } from "./waiting-display.ts";

test("a wait that goes to and fro says each thing once in a log", () => {
  const lines: string[] = [];
  using display = new WaitingDisplay({ write: (text) => lines.push(text) });
  for (let round = 0; round < 20; round += 1) {
    display.show("waiting for room");
    display.show("waiting for the controller");
  }
  expect(lines).toEqual(["millpond: waiting for room\n", "millpond: waiting for the controller\n"]);
  display.show("1 ahead of it");
  expect(lines).toHaveLength(3);
});

test("a narrow terminal has name, place, elapsed and expected time first, in one line", () => {
  const lines: string[] = [];
  using display = new WaitingDisplay({ isTTY: true, columns: 72, write: (text) => lines.push(text) });
  const standing = { head: "claim train, 2 ahead of it", rest: "1 vGPU: all 2 devices are granted whole" };
  display.show("claim train is waiting", {
    ...standing,
    expectedAt: Math.floor(Date.now() / 1000) + 100_000,
  });
  const [line = ""] = lines;
  expect(line).toMatch(/claim train, 2 ahead of it, waiting \ds, room expected within 1d3h/);
  expect(line).toContain("…");
  expect(lines.join("")).not.toContain("\n");
});
