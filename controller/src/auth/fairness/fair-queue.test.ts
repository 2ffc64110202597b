// SPDX-License-Identifier: Apache-2.0

// The fair queue in simulated time: reads arrive, use the thread piece by piece, and end.

import fc from "fast-check";
import { expect, test } from "vitest";
import { FairQueue } from "./fair-queue.ts";

/** The longest piece of work, in milliseconds. */
const mostMs = 5;

interface Read {
  readonly tenant: string;
  readonly token: string;
  readonly atMs: number;
  /** Milliseconds of each of its pieces. */
  readonly pieces: readonly number[];
}

interface Result {
  readonly read: Read;
  readonly begunMs: number;
  readonly endedMs: number;
}

interface Outcome {
  readonly results: readonly Result[];
  /** Milliseconds in which some read waited and none was served. */
  readonly idleMs: number;
}

/** Runs until all reads have ended. `again` returns the reads to start when one has ended, as a flood does. */
function simulate(reads: readonly Read[], again: (read: Read, nowMs: number) => Read | undefined): Outcome {
  const queue = new FairQueue<{ readonly read: Read; piece: number; begunMs: number }>();
  const coming = reads.toSorted((a, b) => a.atMs - b.atMs);
  const results: Result[] = [];
  let nowMs = 0;
  let idleMs = 0;
  const arrive = (): void => {
    for (let read = coming[0]; read !== undefined && read.atMs <= nowMs; read = coming[0]) {
      coming.shift();
      queue.add(read.tenant, read.token, { read, piece: 0, begunMs: 0 }, true, nowMs);
    }
  };
  for (;;) {
    arrive();
    const served = queue.next(nowMs);
    if (typeof served === "object") {
      const { item, isFresh } = served;
      const { tenant, token, pieces } = item.read;
      if (isFresh) item.begunMs = nowMs;
      const ms = pieces[item.piece] ?? 0;
      item.piece += 1;
      nowMs += ms;
      arrive();
      // As in the controller, the next piece waits before this one is charged.
      if (item.piece < pieces.length) queue.add(tenant, token, item, false, nowMs);
      queue.charge(tenant, token, ms, nowMs);
      if (item.piece < pieces.length) continue;
      queue.end(tenant, token, nowMs);
      results.push({ read: item.read, begunMs: item.begunMs, endedMs: nowMs });
      const next = again(item.read, nowMs);
      if (next !== undefined) coming.unshift(next);
      continue;
    }
    const arrivalMs = (coming[0]?.atMs ?? Infinity) - nowMs;
    // Timers are of whole milliseconds.
    const waitMs = Math.min(Math.ceil(served ?? Infinity), arrivalMs);
    if (waitMs === Infinity) return { results, idleMs };
    if (served !== undefined) idleMs += waitMs;
    nowMs += waitMs;
  }
}

const piece = fc.double({ min: 0.5, max: mostMs, noNaN: true });
const pieces = fc.array(piece, { minLength: 1, maxLength: 20 });

/** Tenants that read without pause, each by some tokens. */
const flood = fc.array(
  fc.array(fc.record({ reads: fc.integer({ min: 1, max: 4 }), pieces }), { minLength: 1, maxLength: 12 }),
  { minLength: 1, maxLength: 4 },
);

function readsOf(tenants: readonly (readonly { reads: number; pieces: readonly number[] }[])[]): Read[] {
  return tenants.flatMap((tokens, tenant) =>
    tokens.flatMap((token, index) =>
      Array.from({ length: token.reads }, () => ({
        tenant: `flood-${tenant}`,
        token: `${tenant}-${index}`,
        atMs: 0,
        pieces: token.pieces,
      })),
    ),
  );
}

/** Reads start with every one that ends, until this time. */
const until =
  (endMs: number) =>
  (read: Read, nowMs: number): Read | undefined =>
    read.tenant.startsWith("flood") && nowMs < endMs ? { ...read, atMs: nowMs } : undefined;

test("a tenant that reads now and then waits for two pieces of each other tenant, however many tokens those have", () => {
  fc.assert(
    fc.property(
      flood,
      fc.array(fc.record({ atMs: fc.integer({ min: 0, max: 900 }), ms: piece }), { maxLength: 15 }),
      (tenants, modest) => {
        // Not both at the same time, and for less than its part.
        const spaced = modest
          .toSorted((a, b) => a.atMs - b.atMs)
          .map(({ atMs, ms }, i) => ({
            tenant: "modest",
            token: "modest",
            atMs: atMs + i * 60,
            pieces: [ms],
          }));
        const { results } = simulate([...readsOf(tenants), ...spaced], until(1_800));
        const own = results.filter(({ read }) => read.tenant === "modest");
        expect(own).toHaveLength(spaced.length);
        const bound = (2 * tenants.length + 1) * mostMs;
        for (const { read, begunMs } of own) expect(begunMs - read.atMs).toBeLessThanOrEqual(bound);
      },
    ),
    { numRuns: 40 },
  );
});

test("a tenant that is alone is never made to wait", () => {
  fc.assert(
    fc.property(flood, (tenants) => {
      const [alone = []] = tenants;
      const { idleMs } = simulate(readsOf([alone]), until(2_000));
      expect(idleMs).toBe(0);
    }),
    { numRuns: 40 },
  );
});

test("tenants that read without pause have equal parts, however many tokens they have, and so have the tokens of each", () => {
  fc.assert(
    fc.property(flood, (tenants) => {
      const endMs = 2_000;
      // Enough reads that each tenant always has one waiting.
      const many = tenants.map((tokens) => tokens.map((token) => ({ ...token, reads: token.reads + 2 })));
      const { results } = simulate(readsOf(many), until(endMs));
      const sum = (of: readonly Result[]): number =>
        of
          .filter(({ endedMs }) => endedMs <= endMs)
          .reduce((total, { read }) => total + read.pieces.reduce((all, each) => all + each, 0), 0);
      // The sum leaves out the reads that have begun and not ended, of which a tenant may have a fixed number.
      const longest = Math.max(...tenants.flat().map((token) => token.pieces.reduce((a, b) => a + b, 0)));
      const parts = tenants.map((_, tenant) =>
        sum(results.filter(({ read }) => read.tenant === `flood-${tenant}`)),
      );
      expect(Math.max(...parts) - Math.min(...parts)).toBeLessThanOrEqual(9 * longest + 2 * mostMs);
    }),
    { numRuns: 40 },
  );
});

test("while others are served, a tenant leaves them their part of the time; alone it has all again", () => {
  const queue = new FairQueue<string>();
  let nowMs = 0;
  /** Milliseconds of thread time that a tenant gets when it reads without pause. */
  const readFor = (ms: number, every: () => void): number => {
    let used = 0;
    for (const endMs = nowMs + ms; nowMs < endMs; ) {
      every();
      queue.add("greedy", "greedy", "read", true, nowMs);
      for (let next = queue.next(nowMs); typeof next !== "object"; next = queue.next(nowMs))
        nowMs += next ?? 1;
      nowMs += 4;
      used += 4;
      queue.charge("greedy", "greedy", 4, nowMs);
      queue.end("greedy", "greedy", nowMs);
    }
    return used;
  };
  const alone = () => undefined;
  const noteOne = () => queue.note("a", nowMs);
  const noteTwo = () => {
    queue.note("a", nowMs);
    queue.note("b", nowMs);
  };
  expect(readFor(2_000, alone)).toBeGreaterThan(1_990);
  expect(readFor(10_000, noteOne) / 10_000).toBeCloseTo(1 / 2, 1);
  expect(readFor(10_000, noteTwo) / 10_000).toBeCloseTo(1 / 3, 1);
  readFor(1_100, alone);
  expect(readFor(2_000, alone)).toBeGreaterThan(1_990);
});

test("a token is not starved by ever new ones of its tenant", () => {
  const queue = new FairQueue<string>();
  queue.add("tenant", "old", "old", true, 0);
  let passedBy = 0;
  let mostPassedBy = 0;
  queue.add("tenant", "new-0", "new-0", true, 0);
  for (let nowMs = 1; nowMs <= 5_000; nowMs += 1) {
    const next = queue.next(nowMs);
    if (typeof next !== "object") throw new Error("nothing is next");
    passedBy = next.item === "old" ? 0 : passedBy + 1;
    mostPassedBy = Math.max(mostPassedBy, passedBy);
    // The read of the old token is followed by another of the same token, each other read by one of a new token.
    const following = next.item === "old" ? "old" : `new-${nowMs}`;
    queue.add("tenant", following, following, true, nowMs);
    queue.charge("tenant", next.item, 1, nowMs);
    queue.end("tenant", next.item, nowMs);
  }
  expect(mostPassedBy).toBeLessThan(4);
});
