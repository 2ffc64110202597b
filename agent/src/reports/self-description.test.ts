// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { SelfDescription } from "./self-description.ts";

const node = { agentUrl: "http://127.0.0.1:7171", devices: [{ index: 0, uuid: "GPU-0" }] };

test("a node is described until the controller remembers it", () => {
  const self = new SelfDescription();
  expect(self.say(1n, node)).toEqual(node);
  expect(self.say(2n, node)).toEqual(node);
  // An answer to the previous call says nothing about this one.
  self.learn(node, { describedBy: 1n });
  expect(self.say(3n, node)).toEqual(node);
  self.learn(node, { describedBy: 3n });
  expect(self.say(4n, { ...node })).toEqual({ describedBy: 3n });
});

test("a node that has changed is described again", () => {
  const self = new SelfDescription();
  self.say(1n, node);
  self.learn(node, { describedBy: 1n });
  const other = { ...node, devices: [{ index: 0, uuid: "GPU-1" }] };
  expect(self.say(2n, other)).toEqual(other);
  self.learn({ describedBy: 1n }, { describedBy: 1n });
  expect(self.say(3n, other)).toEqual(other);
  self.learn(other, { describedBy: 3n });
  expect(self.say(4n, other)).toEqual({ describedBy: 3n });
});

test("a call that a controller could not understand is made again with everything", () => {
  const self = new SelfDescription();
  self.say(1n, node);
  expect(self.learn(node, { describedBy: 1n })).toBe(false);
  expect(self.learn(self.say(2n, node), { describedBy: 0n })).toBe(true);
  expect(self.say(2n, node)).toEqual(node);
});

test("a controller that remembers nothing gets the description every time", () => {
  const self = new SelfDescription();
  for (const sequence of [1n, 2n]) {
    expect(self.learn(self.say(sequence, node), { describedBy: 0n })).toBe(false);
  }
  expect(self.say(3n, node)).toEqual(node);
});
