// SPDX-License-Identifier: Apache-2.0

// Behaviour specific to this store; common behaviour is tested in store.test.ts.

import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import pg from "pg";
import { describe, expect, onTestFinished, test } from "vitest";
import { Ledger } from "../state/ledger.ts";
import { postgresServer } from "../testing/backends.ts";
import { ManualClock } from "../testing/manual-clock.ts";
import { missingPostgres } from "../testing/postgres-server.ts";
import { until } from "../testing/until.ts";
import { allocation, changes, claim, event, node, queue, tenant, token } from "../testing/records.ts";
import { PostgresStore } from "./postgres-store.ts";
import type { Candidate, Store } from "../state/store.ts";

const why = missingPostgres === undefined ? "" : ` (${missingPostgres})`;

/** A database, with a store for each of `count` controllers. */
async function openStores(count: number, maxChanges?: number) {
  const server = await postgresServer();
  const url = await server.makeDatabase();
  const database = new URL(url).pathname.slice(1);
  const stores: { readonly store: PostgresStore; readonly candidate: Candidate }[] = [];
  for (let index = 0; index < count; index += 1) {
    const store = await PostgresStore.open({ url, ...(maxChanges === undefined ? {} : { maxChanges }) });
    onTestFinished(() => store.close().catch(() => undefined));
    stores.push({ store, candidate: { id: randomUUID(), url: `http://127.0.0.1:${7170 + index}` } });
  }
  const query = (sql: string) => server.query(database, `SET search_path = millpond; ${sql}`);
  return { server, url, stores, query };
}

/** Makes the lease expire, as when the leader is gone. */
const expire = "UPDATE leader SET expires_at = '-infinity'";

function ledgerOf(store: Store, state: Awaited<ReturnType<Store["load"]>>) {
  return new Ledger<void, void>(store, state, new ManualClock(), {
    conclude: () => undefined,
    onDone: () => undefined,
  });
}

/** The content of a ledger, in an order independent of its history. */
function lookAt(ledger: ReturnType<typeof ledgerOf>) {
  const { claims, allocations, nodes, queues, tenants, tokens, revision, epoch, lastEvent } = ledger;
  const sorted = (map: ReadonlyMap<unknown, unknown>) =>
    [...map].toSorted(([a], [b]) => (String(a) < String(b) ? -1 : 1));
  const maps = [claims, allocations.byEpoch, nodes, queues, tenants, tokens].map(sorted);
  return { maps, nodes: ledger.sortedNodes, revision, epoch, lastEvent, totals: ledger.totals };
}

describe.skipIf(missingPostgres !== undefined)(`PostgreSQL${why}`, () => {
  test("one leads until its lease runs out, and whatever it writes after that is refused", async () => {
    const { stores, query } = await openStores(2);
    const [a, b] = stores;
    if (a === undefined || b === undefined) {
      throw new Error("there are two");
    }
    const first = await a.store.campaign(a.candidate);
    expect(first).toEqual({ term: 1, url: a.candidate.url, isOurs: true });
    expect(await b.store.campaign(b.candidate)).toEqual({ ...first, isOurs: false });
    await a.store.commit(changes(1, { claims: [claim("a")] }), first.term);
    await query(expire);
    const second = await b.store.campaign(b.candidate);
    expect(second).toEqual({ term: 2, url: b.candidate.url, isOurs: true });
    await expect(a.store.commit(changes(2, { forgottenClaims: ["a"] }), first.term)).rejects.toThrow(
      /\[MILLPOND_E_NOT_LEADER\]$/,
    );
    expect(await a.store.campaign(a.candidate)).toEqual({ ...second, isOurs: false });
    await b.store.commit(changes(2), second.term);
    expect(await a.store.load()).toMatchObject({ revision: 2, claims: [{ name: "a" }] });
  });

  test("who resigns is followed at once, and nobody leads meanwhile", async () => {
    const { stores } = await openStores(2);
    const [a, b] = stores;
    await a?.store.campaign(a.candidate);
    await a?.store.resign(a.candidate);
    // A controller that is not the leader: nothing happens.
    await a?.store.resign({ id: "another", url: "" });
    expect(await b?.store.campaign(b.candidate)).toMatchObject({ term: 2, isOurs: true });
  });

  test("a lease that is not renewed ends also where the database's clock was set back", async () => {
    const { stores, query } = await openStores(2);
    const [a, b] = stores;
    await a?.store.campaign(a.candidate);
    await query("UPDATE leader SET expires_at = 'infinity'");
    expect(await b?.store.campaign(b.candidate)).toMatchObject({ isOurs: false });
    const lead = await until("a lease that has ended", async () => {
      const found = await b?.store.campaign(b.candidate);
      return found?.isOurs === true ? found : undefined;
    });
    expect(lead.term).toBe(2);
    // The leader notices at its next query.
    expect(await a?.store.campaign(a.candidate)).toMatchObject({ term: 2, isOurs: false });
  });

  test("who follows knows what a fresh read gives, as far behind as changes are remembered", async () => {
    const { stores } = await openStores(2, 3);
    const [a, b] = stores;
    if (a === undefined || b === undefined) {
      throw new Error("there are two");
    }
    const { term } = await a.store.campaign(a.candidate);
    const ledger = ledgerOf(b.store, await b.store.load());
    const follow = async () => {
      for (const each of (await b.store.changesAfter(ledger.revision)) ?? []) {
        ledger.follow(each);
      }
      expect(lookAt(ledger)).toEqual(lookAt(ledgerOf(a.store, await a.store.load())));
    };
    const first = changes(2, {
      nodes: [node, { ...node, name: "node-b" }],
      claims: [claim("a"), claim("b", { arrival: 2, state: "pending", boundAt: null, waitingSince: 5 })],
      allocations: [allocation("a")],
      queues: [queue],
      tenants: [tenant],
      tokens: [token],
      events: [{ id: 1, ...event }],
    });
    await a.store.commit(first, term);
    await follow();
    // One node with unchanged devices, and one with fewer.
    const fewer = { ...node, name: "node-b", revision: 3, devices: node.devices.slice(1) };
    await a.store.commit(changes(3, { nodes: [{ ...node, revision: 3 }, fewer] }), term);
    const ended = claim("a", { state: "released", endedAt: 9, version: 4 });
    const taken = allocation("a", { releasedRevision: 4 });
    await a.store.commit(
      changes(4, { claims: [ended], allocations: [taken], removedQueues: ["research"] }),
      term,
    );
    await follow();
    const gone = { removedAllocations: [1], forgottenClaims: ["a"], removedTokens: ["ci"] };
    await a.store.commit(changes(5, { ...gone, removedTenants: ["team-a"] }), term);
    await follow();
    expect(ledger.revision).toBe(5);
    expect(await b.store.changesAfter(2)).toHaveLength(3);
    expect(await b.store.changesAfter(0)).toBeUndefined();
  });

  test("a change whose answer was lost is made once", async () => {
    const { stores, url, query } = await openStores(1);
    const [a] = stores;
    if (a === undefined) {
      throw new Error("there is one");
    }
    const { term } = await a.store.campaign(a.candidate);
    // The connection of the commit is cut while it waits for a row that another connection has locked.
    const holder = new pg.Client(url);
    await holder.connect();
    await holder.query("BEGIN; SELECT FROM millpond.pool FOR UPDATE");
    const committed = a.store.commit(changes(1, { events: [{ id: 1, ...event }] }), term);
    const cut =
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%commit_change%'";
    await until("a commit that waits for a lock", async () => (await query(cut))[0]);
    await holder.query("COMMIT");
    await holder.end();
    await committed;
    expect(await a.store.listEvents({ after: 0, subject: "", limit: 9, end: "newest" })).toHaveLength(1);
    // Committing the same changes again succeeds; other changes under that revision are refused.
    await a.store.commit(changes(1, { events: [{ id: 1, ...event }] }), term);
    await expect(a.store.commit(changes(1, { events: [{ id: 2, ...event }] }), term)).rejects.toThrow(
      /revision 1 .* would go back/,
    );
    expect(await a.store.load()).toMatchObject({ revision: 1, lastEvent: 1 });
  });

  test("a database of the first version is brought up to date with all that is in it", async () => {
    const server = await postgresServer();
    const url = await server.makeDatabase();
    const database = new URL(url).pathname.slice(1);
    const first = new URL("./migrations/postgres/000001_initial.sql", import.meta.url);
    await server.query(
      database,
      `CREATE SCHEMA millpond; SET search_path = millpond;
       CREATE TABLE schema_versions (version INTEGER PRIMARY KEY);
       INSERT INTO schema_versions VALUES (1);
       ${readFileSync(first, "utf8")}
       INSERT INTO pool VALUES (1, 'an-identity', 9, 4, '\\x00');
       INSERT INTO nodes VALUES ('node-a', 'http://127.0.0.1:1', '0.1.0', 'host', 'boot', 1, '', '{}', '{}', 5, 100);
       INSERT INTO devices VALUES
         ('node-a', 'GPU-0', 0, 'H200', 'nvidia', 1000000, '', '9.0', 132, '', 13000, 1, '', 0, '', '', '');
       INSERT INTO claims VALUES
         ('old', 3, '{"memoryBytes":600000}', 'bound', '', 4, 100, 101, NULL, NULL, NULL, 0);
       INSERT INTO allocations VALUES (4, 'old', 'node-a', 101, NULL);
       INSERT INTO virtual_gpus VALUES (4, 0, 'node-a', 'GPU-0', 600000, 40);`,
    );
    const store = await PostgresStore.open({ url });
    onTestFinished(() => store.close());
    const state = await store.load();
    expect(state).toMatchObject({
      identity: "an-identity",
      revision: 9,
      epoch: 4,
      nodes: [{ name: "node-a", isCordoned: true, devices: [{ uuid: "GPU-0" }] }],
      claims: [{ name: "old", memoryBytes: 600_000n, state: "bound" }],
      allocations: [{ claim: "old", epoch: 4, devices: [{ memoryBytes: 600_000n, computePercent: 40 }] }],
    });
    // One controller has begun with the new schema, so a controller of the older version no longer writes.
    const { term } = await store.campaign({ id: "a", url: "" });
    expect(term).toBe(2);
    await store.commit(changes(10, { epoch: 5, claims: [claim("new", { arrival: 10 })] }), term);
    expect((await store.load()).claims).toHaveLength(2);
  });

  test("a newer schema is refused and left alone, also while running", async () => {
    const { stores, url, query } = await openStores(1);
    const [a] = stores;
    await query("INSERT INTO schema_versions VALUES (999)");
    const refused = /the state has schema version 999, .*\[MILLPOND_E_STATE_NEWER\]$/;
    await expect(PostgresStore.open({ url })).rejects.toThrow(refused);
    await expect(a?.store.campaign(a.candidate)).rejects.toThrow(refused);
  });

  test("two that open a new database at once agree on what it is", async () => {
    const url = await (await postgresServer()).makeDatabase();
    const opened = await Promise.all([1, 2, 3].map(() => PostgresStore.open({ url })));
    onTestFinished(async () => {
      await Promise.all(opened.map((store) => store.close()));
    });
    const identities = await Promise.all(opened.map(async (store) => (await store.load()).identity));
    expect(new Set(identities).size).toBe(1);
  });

  test("a server that is away, a database that is not there and other URLs are told apart", async () => {
    const server = await postgresServer();
    const open = (url: string) => PostgresStore.open({ url });
    const away = "postgres://millpond:secret@127.0.0.1:1/pool";
    await expect(open(away)).rejects.toThrow(
      /the database at 127\.0\.0\.1:1\/pool does not answer: .*ECONNREFUSED.*\[MILLPOND_E_STORE_UNREACHABLE\]$/,
    );
    await expect(open(server.urlOf("missing"))).rejects.toThrow(
      /database "missing" does not exist\. .*\[MILLPOND_E_STATE_BROKEN\]$/,
    );
    await expect(open("mysql://user:secret@host/pool")).rejects.toThrow(
      /mysql:\/\/…@host.*MILLPOND_E_INVALID/,
    );
  });

  test("a table that somebody locks is said to be locked, keeps no connection, and is written when it is free", async () => {
    const { url, stores, query } = await openStores(1);
    const { store, candidate } = stores[0] ?? expect.fail();
    const { term } = await store.campaign(candidate);
    const holder = new pg.Client(url);
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query("BEGIN; LOCK TABLE millpond.claims");
    const change = changes(1, { claims: [claim("a")] });
    await expect(store.commit(change, term)).rejects.toThrow(
      /is locked by another process: .*pg_locks.*\[MILLPOND_E_STORE_UNREACHABLE\]$/,
    );
    // A controller that keeps reconnecting would exhaust the server's connections.
    expect(
      await query(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
      ),
    ).toEqual([]);
    await holder.query("ROLLBACK");
    await store.commit(change, term);
    expect(await store.load()).toMatchObject({ revision: 1, claims: [{ name: "a" }] });
  });

  test("a disk without room is said to be full, and what was refused is not there", async () => {
    const { stores, query } = await openStores(1);
    const { store, candidate } = stores[0] ?? expect.fail();
    const { term } = await store.campaign(candidate);
    // The server's error in that case; the test cannot have a disk of its own.
    await query(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      RAISE 'No space left on device' USING ERRCODE = 'disk_full'; END $$;
      CREATE TRIGGER full_disk BEFORE INSERT ON events EXECUTE FUNCTION full_disk()`);
    const change = changes(1, { claims: [claim("a")], events: [{ ...event, id: 1 }] });
    await expect(store.commit(change, term)).rejects.toThrow(
      /has no room: No space left on device\. Free space on the disk of the database.*\[MILLPOND_E_STATE_FULL\]$/,
    );
    expect(await store.load()).toMatchObject({ revision: 0, claims: [] });
    await query("DROP TRIGGER full_disk ON events");
    await store.commit(change, term);
    expect(await store.load()).toMatchObject({ revision: 1, claims: [{ name: "a" }] });
  });

  test("a database that may only be read, as a standby, is told as such, and is led again when it may be written", async () => {
    const { server, url, stores, query } = await openStores(1);
    const { store, candidate } = stores[0] ?? expect.fail();
    const { term } = await store.campaign(candidate);
    const name = new URL(url).pathname.slice(1);
    const setReadOnly = async (value: "on" | "off") => {
      await server.query(
        "postgres",
        `ALTER DATABASE ${name} SET default_transaction_read_only = ${value};
         SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '${name}'`,
      );
    };
    await setReadOnly("on");
    const readOnly = /is read-only: .*standby.*\[MILLPOND_E_STORE_UNREACHABLE\]$/;
    await expect.poll(() => store.campaign(candidate).catch(String)).toMatch(readOnly);
    await expect(store.commit(changes(1, { claims: [claim("a")] }), term)).rejects.toThrow(readOnly);
    expect(await store.load()).toMatchObject({ revision: 0 });
    await setReadOnly("off");
    await expect.poll(() => store.campaign(candidate).catch(String)).toMatchObject({ term, isOurs: true });
    await query("SELECT 1");
  });

  test("who has no connection left, or no password, is told so, and leaves no half-open connection behind", async () => {
    const server = await postgresServer();
    const url = await server.makeDatabase();
    const name = new URL(url).pathname.slice(1);
    const as = (user: string) => PostgresStore.open({ url: url.replace("//millpond@", `//${user}@`) });
    const [found] = await server.query("postgres", "SHOW hba_file");
    const path = (found as { readonly hba_file: string }).hba_file;
    const before = readFileSync(path, "utf8");
    const setRules = async (rules: string) => {
      writeFileSync(path, rules);
      await server.query("postgres", "SELECT pg_reload_conf()");
    };
    await server.query(
      "postgres",
      `CREATE ROLE crowded LOGIN CONNECTION LIMIT 0; CREATE ROLE guarded LOGIN PASSWORD 'of-the-database'`,
    );
    await expect(as("crowded")).rejects.toThrow(
      /has no free connection: .*max_connections.*\[MILLPOND_E_STORE_UNREACHABLE\]$/,
    );
    await setRules(`local ${name} guarded scram-sha-256\n${before}`);
    onTestFinished(() => setRules(before));
    const refused =
      /rejects the login of this controller: .*MILLPOND_STORE.*\[MILLPOND_E_STORE_UNREACHABLE\]$/;
    await expect.poll(() => as("guarded").then(String, String)).toMatch(refused);
    await expect(as("guarded:wrong")).rejects.toThrow(refused);
    const halfOpen = () =>
      readdirSync("/proc")
        .filter((pid) => /^\d+$/.test(pid))
        .filter((pid) => readProcessTitle(pid).startsWith(`postgres: guarded ${name}`));
    // By itself the server would wait a minute.
    await expect.poll(halfOpen, { timeout: 50_000 }).toEqual([]);
  });
});

/** Empty: the server's process for it has ended. */
function readProcessTitle(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}
