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
  display.show("1 waiting before it");
  expect(lines).toHaveLength(3);
});
