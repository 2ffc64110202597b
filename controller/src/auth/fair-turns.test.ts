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
  expect(reasons.filter((reason) => reason.includes("MILLPOND_E_TOO_MANY_CALLS"))).toHaveLength(43);
  expect(reasons.filter((reason) => reason === "Error: it fails")).toHaveLength(129);
  expect(await turns.take("greedy", async () => "again")).toBe("again");
});

test("a token that reads without end gets a part of the time, and others all of theirs", async () => {
  const turns = new FairTurns();
  const endMs = performance.now() + 3_000;
  const readFor = async (token: string, ms: number): Promise<void> => {
    await turns.take(token, async () => {
      const untilMs = performance.now() + ms;
      while (performance.now() < untilMs);
    });
  };
  let greedy = 0;
  const flood = Array.from({ length: 8 }, async () => {
    while (performance.now() < endMs) {
      await readFor("greedy", 20);
      greedy += 1;
    }
  });
  const waits: number[] = [];
  while (performance.now() < endMs) {
    const begunMs = performance.now();
    await readFor("modest", 1);
    waits.push(performance.now() - begunMs);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await Promise.all(flood);
  // Half a second, and a quarter of the time: 1.25 s. It could have had 150 turns.
  expect(greedy * 20).toBeLessThan(1_250 + 8 * 20 + 250);
  expect(greedy * 20).toBeGreaterThan(600);
  waits.sort((a, b) => a - b);
  expect(waits[Math.floor(waits.length / 2)]).toBeLessThan(20);
});

test("a burst is read at once", async () => {
  let nowMs = 0;
  const turns = new FairTurns(() => nowMs);
  const read = () => turns.take("console", async () => void (nowMs += 45));
  await Promise.all(Array.from({ length: 10 }, read));
  expect(nowMs).toBe(450);
});

test("lines of many tokens are forgotten, and those that wait are not", async () => {
  const turns = new FairTurns();
  const tokens = Array.from({ length: 3_000 }, (_, index) => `token-${index}`);
  const seen = await Promise.all(tokens.map((token) => turns.take(token, async () => token)));
  expect(seen).toEqual(tokens);
});
