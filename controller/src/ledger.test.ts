// SPDX-License-Identifier: Apache-2.0

import { expect, onTestFinished, test } from "vitest";
import { type Changed, Ledger } from "./ledger.ts";
import { defaultClaimSpec } from "./store/claim-spec.ts";
import { SqliteStore } from "./store/sqlite-store.ts";
import type { ClaimRecord } from "./store/store.ts";
import { ManualClock } from "./testing/manual-clock.ts";
import { makeTestDirectory } from "./testing/test-pool.ts";

const claim: ClaimRecord = {
  ...defaultClaimSpec,
  name: "a",
  arrival: 1,
  state: "pending",
  reason: "",
  version: 0,
  createdAt: 0,
  boundAt: null,
  endedAt: null,
  waitingSince: 0,
  preemptAt: null,
  requeues: 0,
};

async function openLedger(): Promise<{ readonly ledger: Ledger; readonly store: SqliteStore }> {
  const store = SqliteStore.open({ directory: makeTestDirectory() });
  onTestFinished(() => store.close());
  return { ledger: new Ledger(store, await store.load(), new ManualClock()), store };
}

const ignore = () => undefined;

test("a transaction sees its own changes, others see them when they are durable", async () => {
  const { ledger, store } = await openLedger();
  const told: Changed[] = [];
  const version = await ledger.transact(
    (transaction) => {
      transaction.putClaim(claim);
      transaction.addEvent("ClaimCreated", "claim/a", "1 vGPU");
      expect(ledger.claims.size).toBe(0);
      return transaction.claim("a")?.version;
    },
    (changed) => told.push(changed),
  );
  expect(version).toBe(1);
  expect(told.map(({ claims, events }) => [[...claims], events.length])).toEqual([[["a"], 1]]);
  expect(ledger.claims.get("a")).toEqual((await store.load()).claims[0]);
  expect(ledger.revision).toBe(1);
});

test("a transaction that throws, or that the store refuses, has not happened; the next one goes on", async () => {
  const { ledger, store } = await openLedger();
  const before = await store.load();
  const thrown = ledger.transact((transaction) => {
    transaction.putClaim(claim);
    throw new Error("changed my mind");
  }, ignore);
  const refused = ledger.transact((transaction) => {
    transaction.putClaim(claim);
    transaction.nextEpoch();
    transaction.putAllocation({
      claim: "nobody",
      node: "none",
      epoch: 1,
      grantedAt: 0,
      releasedRevision: null,
      devices: [],
    });
  }, ignore);
  const next = ledger.transact((transaction) => {
    expect(transaction.allClaims()).toEqual([]);
    expect([transaction.revision, transaction.epoch]).toEqual([1, 0]);
  }, ignore);
  await expect(thrown).rejects.toThrow("changed my mind");
  await expect(refused).rejects.toThrow(/MILLPOND_E_STATE_BROKEN/);
  await next;
  expect([ledger.claims.size, ledger.allocations.byEpoch.size, ledger.revision]).toEqual([0, 0, 0]);
  expect(await store.load()).toEqual(before);
});

test("transactions run one after the other", async () => {
  const { ledger } = await openLedger();
  const counts = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      ledger.transact((transaction) => {
        transaction.putClaim({ ...claim, name: `c${index}`, arrival: transaction.revision });
        return transaction.allClaims().length;
      }, ignore),
    ),
  );
  expect(counts).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
});

test("a transaction without changes is not written", async () => {
  const { ledger } = await openLedger();
  await ledger.transact(
    (transaction) => transaction.allClaims(),
    () => expect.unreachable(),
  );
  expect(ledger.revision).toBe(0);
});
