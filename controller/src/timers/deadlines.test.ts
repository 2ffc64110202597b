// SPDX-License-Identifier: Apache-2.0

import * as fc from "fast-check";
import { expect, test } from "vitest";
import { Deadlines } from "./deadlines.ts";

const keys = fc.constantFrom("a", "b", "c", "d", "e");

const steps = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant("set"),
      key: keys,
      at: fc.integer({ min: 0, max: 50 }),
    }),
    fc.record({ kind: fc.constant("delete"), key: keys, at: fc.constant(0) }),
    fc.record({ kind: fc.constant("take"), key: fc.constant(""), at: fc.integer({ min: 0, max: 50 }) }),
  ),
  { maxLength: 60 },
);

test("what is due, and when the next is, is what a plain map says, however often dates are moved", () => {
  fc.assert(
    fc.property(steps, (history) => {
      const deadlines = new Deadlines();
      const plain = new Map<string, number>();
      for (const { kind, key, at } of history) {
        if (kind === "set") {
          deadlines.set(key, at);
          plain.set(key, at);
        } else if (kind === "delete") {
          deadlines.delete(key);
          plain.delete(key);
        } else {
          const due = [...plain].filter(([, date]) => date <= at).map(([name]) => name);
          expect(deadlines.takeDue(at).toSorted()).toEqual(due.toSorted());
          for (const name of due) {
            plain.delete(name);
          }
        }
        expect(deadlines.next()).toBe(plain.size === 0 ? undefined : Math.min(...plain.values()));
      }
    }),
  );
});
