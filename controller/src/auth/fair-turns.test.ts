// SPDX-License-Identifier: Apache-2.0

import { expect, test } from "vitest";
import { FairTurns } from "./fair-turns.ts";

test("a token that came with one read does not wait for all of another's", async () => {
  const turns = new FairTurns();
  const order: string[] = [];
  const read = (token: string) => turns.take(token, async () => void order.push(token));
  await Promise.all([...Array.from({ length: 20 }, () => read("greedy")), read("modest"), read("third")]);
  expect(order.indexOf("modest")).toBeLessThan(6);
  expect(order.indexOf("third")).toBeLessThan(6);
  expect(order).toHaveLength(22);
});

test("what fails gives its turn on, and what is beyond the line is refused", async () => {
  const turns = new FairTurns();
  const outcomes = await Promise.allSettled(
    Array.from({ length: 300 }, (_, index) =>
      turns.take("greedy", async () => {
        if (index % 2 === 0) {
          throw new Error("it fails");
        }
      }),
    ),
  );
  const reasons = outcomes.map((outcome) =>
    outcome.status === "rejected" ? String(outcome.reason) : "done",
  );
  expect(reasons.filter((reason) => reason.includes("MILLPOND_E_TOO_MANY_CALLS"))).toHaveLength(42);
  expect(reasons.filter((reason) => reason === "Error: it fails")).toHaveLength(129);
  expect(await turns.take("greedy", async () => "again")).toBe("again");
});
