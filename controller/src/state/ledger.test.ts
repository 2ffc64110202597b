// SPDX-License-Identifier: Apache-2.0

import { millpondError, reason } from "@millpond/api";
import { expect, onTestFinished, test } from "vitest";
import { Ledger } from "./ledger.ts";
import { defaultClaimSpec } from "../domain/claim-spec.ts";
import { SqliteStore } from "../store/sqlite-store.ts";
import type { ClaimRecord } from "../domain/records.ts";
import { ManualClock } from "../testing/manual-clock.ts";
import { makeTestDirectory } from "../testing/test-pool.ts";
import type { Store } from "./store.ts";
import type { Changed } from "./transaction.ts";

const claim: ClaimRecord = {
  ...defaultClaimSpec,
  name: "a",
  arrival: 1,
  state: "pending",
  reason: undefined,
  version: 0,
  createdAt: 0,
  boundAt: null,
  endedAt: null,
  waitingSince: 0,
  preemptAt: null,
  requeues: 0,
};

type Commit = Store["commit"];

/** The store, whose commits pass through a function, as over a network that may fail. */
function farStore(
  store: SqliteStore,
  through: (commit: () => ReturnType<Commit>) => ReturnType<Commit>,
): Store {
  const commit: Commit = (changes, term) => through(() => store.commit(changes, term));
  return new Proxy(store, {
    get: (target, name) => {
      if (name === "commit") return commit;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

/** Opens a ledger with rules that only record the number of changes they reconcile, and their notifications. */
async function openLedger(through?: Parameters<typeof farStore>[1]) {
  const store = SqliteStore.open({ directory: makeTestDirectory() });
  onTestFinished(() => store.close());
  const told: Changed[] = [];
  const concluded: number[] = [];
  const ledger = new Ledger<number, string>(
    through === undefined ? store : farStore(store, through),
    await store.load(),
    new ManualClock(),
    {
      conclude: (_transaction, scopes) => concluded.push(scopes.length),
      onDone: (changed) => {
        if (changed !== undefined) {
          told.push(changed);
        }
      },
    },
  );
  ledger.lead((await store.campaign({ id: "", url: "" })).term);
  return { ledger, store, told, concluded };
}

test("a change sees itself, others see it when it is durable", async () => {
  const { ledger, store, told } = await openLedger();
  const version = await ledger.change({
    make: (transaction) => {
      transaction.putClaim(claim);
      transaction.addEvent("ClaimCreated", "claim/a", reason("recorded", { text: "1 vGPU" }));
      expect(ledger.claims.size).toBe(0);
      return transaction.claim("a")?.version;
    },
  });
  expect(version).toBe(1);
  expect(told.map(({ claims, events }) => [[...claims], events.length])).toEqual([[["a"], 1]]);
  expect(ledger.claims.get("a")).toEqual((await store.load()).claims[0]);
  expect(ledger.revision).toBe(1);
});

test("a change that throws, or that the store refuses, has not happened; those beside it have", async () => {
  const { ledger, store } = await openLedger();
  const before = await store.load();
  const thrown = ledger.change({
    make: (transaction) => {
      transaction.putClaim(claim);
      throw new Error("changed my mind");
    },
  });
  const refused = ledger.change({
    make: (transaction) => {
      transaction.putClaim(claim);
      transaction.nextEpoch();
      transaction.putAllocation({
        claim: "nobody",
        node: "none",
        epoch: 1,
        grantedAt: 0,
        activeSeconds: 0,
        countedMs: 0,
        releasedRevision: null,
        sizeRevision: 0,
        resizing: null,
        devices: [],
      });
    },
  });
  const next = ledger.change({
    make: (transaction) => {
      expect(transaction.allClaims()).toEqual([]);
      expect([transaction.revision, transaction.epoch]).toEqual([1, 0]);
    },
  });
  await expect(thrown).rejects.toThrow("changed my mind");
  await expect(refused).rejects.toThrow(/MILLPOND_E_STATE_BROKEN/);
  await next;
  expect([ledger.claims.size, ledger.allocations.byEpoch.size, ledger.revision]).toEqual([0, 0, 0]);
  expect(await store.load()).toEqual(before);
  const bad = ledger.change({ make: (transaction) => transaction.putClaim({ ...claim, endedAt: 1 }) });
  const good = ledger.change({ make: (transaction) => transaction.putClaim({ ...claim, name: "b" }) });
  await expect(bad).rejects.toThrow(/MILLPOND_E_STATE_BROKEN/);
  await good;
  expect((await store.load()).claims.map(({ name }) => name)).toEqual(["b"]);
});

test("changes that come together are made one after the other, and written together", async () => {
  const { ledger, store, told, concluded } = await openLedger();
  const counts = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      ledger.change({
        make: (transaction) => {
          transaction.putClaim({ ...claim, name: `c${index}`, arrival: transaction.revision });
          return transaction.allClaims().length;
        },
        scope: "",
      }),
    ),
  );
  expect(counts).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
  expect(told.length).toBe(1);
  expect(concluded).toEqual([20]);
  expect((await store.load()).claims.map(({ arrival }) => arrival)).toEqual(
    Array.from({ length: 20 }, (_, index) => index + 1),
  );
});

test("a change that is refused by what follows has not happened, and those beside it are made without it", async () => {
  const { ledger, concluded } = await openLedger();
  const makes: string[] = [];
  const outcomes = await Promise.allSettled(
    ["a", "b", "c"].map((name) =>
      ledger.change({
        make: (transaction) => {
          makes.push(name);
          transaction.putClaim({ ...claim, name, arrival: transaction.revision });
          return transaction.allClaims().length;
        },
        scope: "",
        verify: () => {
          if (name === "b") {
            throw new Error("no room");
          }
        },
      }),
    ),
  );
  expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect(outcomes.map((each) => ("value" in each ? each.value : ""))).toEqual([1, "", 2]);
  expect([...ledger.claims.values()].map(({ name, arrival }) => [name, arrival])).toEqual([
    ["a", 1],
    ["c", 2],
  ]);
  expect([makes.join(""), concluded, ledger.revision]).toEqual(["abcac", [3, 2], 2]);
});

test("a change is refused only by what is left when all has followed from those before it", async () => {
  const { ledger } = await openLedger();
  let isConcluded = false;
  const first = ledger.change({
    make: (transaction) => transaction.putClaim(claim),
    scope: "",
    verify: () => {
      isConcluded = true;
    },
  });
  const second = ledger.change({
    make: () => {
      if (!isConcluded) {
        throw new Error("too early");
      }
    },
  });
  await Promise.all([first, second]);
  expect(isConcluded).toBe(true);
});

test("a read sees no change that is not durable, whatever comes with it", async () => {
  const { ledger } = await openLedger();
  const change = ledger.change({ make: (transaction) => transaction.putClaim(claim) });
  const look = () => ledger.read((transaction) => [ledger.claims.size, transaction.allClaims().length]);
  expect(await look()).toEqual([0, 0]);
  await change;
  expect(await look()).toEqual([1, 1]);
  const fail = () => {
    throw new Error("cannot look");
  };
  await expect(ledger.read(fail)).rejects.toThrow("cannot look");
  expect(await look()).toEqual([1, 1]);
});

test("a change that changes nothing is not written", async () => {
  const { ledger, told } = await openLedger();
  await ledger.change({ make: (transaction) => transaction.allClaims(), scope: "" });
  expect([ledger.revision, told.length]).toEqual([0, 0]);
});

test("after a database that was away, later changes are refused for that reason, and not for another leader", async () => {
  const away = millpondError("MILLPOND_E_STORE_UNREACHABLE", "the database does not answer");
  let commits = 0;
  const { ledger, store } = await openLedger((commit) => {
    commits += 1;
    return commits === 1 ? Promise.reject(away) : commit();
  });
  const make = (): Promise<unknown> => ledger.change({ make: (transaction) => transaction.putClaim(claim) });
  await expect(make()).rejects.toBe(away);
  await expect(make()).rejects.toThrow(/the database does not answer.*\[MILLPOND_E_STORE_UNREACHABLE\]$/);
  expect(commits).toBe(1);
  expect((await store.load()).claims).toEqual([]);
});
