// SPDX-License-Identifier: Apache-2.0

import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { FairTurns, type ReadTurns } from "./fair-turns.ts";

const reader = (tenant: string, name = tenant) => ({ name, tenant });

/** Uses the thread for this long, at most one turn at a time. */
async function workFor(turns: ReadTurns, ms: number): Promise<void> {
  for (let doneMs = 0; doneMs < ms; doneMs += 1) {
    if (turns.isOver) await turns.next();
    const untilMs = performance.now() + 1;
    while (performance.now() < untilMs);
  }
}

test("a tenant that came with one read does not wait for all of another's, of however many tokens", async () => {
  const turns = new FairTurns();
  const order: string[] = [];
  const read = (tenant: string, token: string) =>
    turns.take(reader(tenant, token), async () => void order.push(tenant));
  const greedy = Array.from({ length: 60 }, (_, i) => read("greedy", `token-${i % 20}`));
  await Promise.all([...greedy, read("modest", "modest"), read("third", "third")]);
  expect(order.indexOf("modest")).toBeLessThan(6);
  expect(order.indexOf("third")).toBeLessThan(6);
  expect(order).toHaveLength(62);
});

test("what fails gives its turn on, and what is beyond the line is refused", async () => {
  const turns = new FairTurns();
  const outcomes = await Promise.allSettled(
    Array.from({ length: 300 }, (_, index) =>
      turns.take(reader("greedy"), async () => {
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
  expect(await turns.take(reader("greedy"), async () => "again")).toBe("again");
});

test("a long read gives the thread to others before it ends", async () => {
  const turns = new FairTurns();
  const order: string[] = [];
  const long = turns.take(reader("greedy"), async (own) => {
    await workFor(own, 60);
    order.push("long");
  });
  await setImmediate();
  await turns.take(reader("modest"), async () => void order.push("short"));
  await long;
  expect(order).toEqual(["short", "long"]);
});

test("a read that has waited for something else goes on in another turn", async () => {
  const turns = new FairTurns(() => 0);
  await turns.take(reader("tenant"), async (own) => {
    expect(own.isOver).toBe(false);
    await setImmediate();
    await setImmediate();
    expect(own.isOver).toBe(true);
    await own.next();
    expect(own.isOver).toBe(false);
  });
});

test("a read whose caller has hung up ends with its next turn, and leaves its place to others", async () => {
  const turns = new FairTurns(() => 0);
  const hungUp = new Error("the client has hung up");
  for (let each = 0; each < 20; each++) {
    const call = new AbortController();
    const read = turns.take(
      reader("tenant"),
      async (own) => {
        call.abort(hungUp);
        await own.next();
        throw new Error("it goes on");
      },
      call.signal,
    );
    await expect(read).rejects.toBe(hungUp);
    const late = turns.take(reader("tenant"), async () => "read", AbortSignal.abort(hungUp));
    await expect(late).rejects.toBe(hungUp);
  }
  expect(await turns.take(reader("tenant"), async () => "read")).toBe("read");
});

test("a burst is read at once, also beside others", async () => {
  let nowMs = 0;
  const turns = new FairTurns(() => nowMs);
  turns.note(reader("other"));
  const read = () => turns.take(reader("console"), async () => void (nowMs += 45));
  await Promise.all(Array.from({ length: 10 }, read));
  expect(nowMs).toBe(450);
});

test("a tenant that is alone has the thread as long as it reads", async () => {
  // A clock that only the reads advance: a read that had to wait would never be answered.
  let nowMs = 0;
  const turns = new FairTurns(() => nowMs);
  const read = (token: string) => turns.take(reader("alone", token), async () => void (nowMs += 45));
  await Promise.all(Array.from({ length: 200 }, (_, i) => read(`token-${i % 5}`)));
  expect(nowMs).toBe(9_000);
});

test("reads of many tokens and tenants are all answered", async () => {
  const turns = new FairTurns();
  const tokens = Array.from({ length: 3_000 }, (_, index) => `token-${index}`);
  const seen = await Promise.all(
    tokens.map((token, i) => turns.take(reader(`tenant-${i % 1500}`, token), async () => token)),
  );
  expect(seen).toEqual(tokens);
});
