// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { errorCodeOf, millpondError } from "@millpond/api";
import { type ChangeRows, fromRows, type KnownDevices, noteDevices, toRows } from "./change-rows.ts";
import { firstSigningKey } from "./first-signing-key.ts";
import { missingMigrations } from "./migrations.ts";
import { PostgresConnections, type Session } from "./postgres-connections.ts";
import {
  defaultMaxAuditRecords,
  defaultMaxEvents,
  maxRememberedChanges,
  maxUsageRecords,
} from "./retention.ts";
import { blob, integer, type Row, text, toAuditRecord, toEvent, toRestoration, toState } from "./rows.ts";
import type { PoolKey } from "../state/pool-key.ts";
import { termIsOver } from "../state/store-errors.ts";
import { toUsagePage, usagePageSize, usagePlace } from "./usage-pages.ts";
import type {
  AuditQuery,
  Candidate,
  EventQuery,
  Leadership,
  Store,
  StoreChanges,
  StoredState,
  UsagePage,
  UsageQuery,
} from "../state/store.ts";
import type { AuditRecord, EventRecord } from "../domain/records.ts";

export interface PostgresStoreOptions {
  /** `postgres://user:password@host:port/database`. */
  readonly url: string;
  /** Seals the secrets of the state. Absent: the state gets no signing key; only tools open a store this way. */
  readonly poolKey?: PoolKey;
  /** How many events are remembered. Default 10000. */
  readonly maxEvents?: number;
  /** How many audit records are remembered. Default 100000. */
  readonly maxAuditRecords?: number;
  /** How many revisions a follower may be behind. Default 20000. */
  readonly maxChanges?: number;
}

/** Duration of the leader's lease. */
const leaseMs = 3_000;

/** How long the outcome of a commit is queried after its answer was lost. */
const commitPatienceMs = 2_000;
const commitPauseMs = 100;

/** Key of the advisory lock: one controller at a time migrates a database. Any number that is unique to it. */
const migrationLock = 7_170_001;

/**
 * The state in a PostgreSQL database, for several controllers. Every write carries the fencing term of its controller
 * and is refused once a later term has begun: the lease shows which controller is the leader, the term decides which
 * may write.
 */
export class PostgresStore implements Store {
  readonly leaseMs = leaseMs;
  readonly #connections: PostgresConnections;
  readonly #maxEvents: number;
  readonly #maxAuditRecords: number;
  readonly #maxChanges: number;
  readonly #knownDevices: KnownDevices = new Map();
  /** The number of lease renewals that was last read, and when it was first seen, on the monotonic clock. */
  #renewals = { count: -1, sinceMs: 0 };

  private constructor(connections: PostgresConnections, options: PostgresStoreOptions) {
    this.#connections = connections;
    this.#maxEvents = options.maxEvents ?? defaultMaxEvents;
    this.#maxAuditRecords = options.maxAuditRecords ?? defaultMaxAuditRecords;
    this.#maxChanges = options.maxChanges ?? maxRememberedChanges;
  }

  /**
   * Opens the store, and creates it with a new identity and key if there is none.
   *
   * @throws MILLPOND_E_INVALID, MILLPOND_E_STORE_UNREACHABLE, MILLPOND_E_STATE_NEWER, MILLPOND_E_STATE_BROKEN
   */
  static async open(options: PostgresStoreOptions): Promise<PostgresStore> {
    const connections = new PostgresConnections(options.url);
    try {
      await connections.transaction("read and write", async (session) => {
        await session.query("SELECT pg_advisory_xact_lock($1)", [migrationLock]);
        await connections.makeSchema(session);
        await migratePostgres(session);
        await initialise(session, options.poolKey);
      });
      return new PostgresStore(connections, options);
    } catch (error) {
      await connections.close();
      throw error;
    }
  }

  async campaign({ id, url }: Candidate): Promise<Leadership> {
    const { count, sinceMs } = this.#renewals;
    const stuck = performance.now() - sinceMs > leaseMs ? count : -1;
    const [row] = await this.#connections.queryPrepared(
      "campaign",
      `SELECT * FROM campaign($1, $2, $3 * interval '1 ms', $4),
         LATERAL (SELECT max(version) AS version FROM schema_versions) AS versions`,
      [id, url, leaseMs, stuck],
    );
    if (row === undefined) {
      throw millpondError("MILLPOND_E_STATE_BROKEN", "the database has no record of the leader");
    }
    // A newer controller or `millpond downgrade` may have changed the database.
    if (missingMigrations("postgres", integer(row, "version")).length > 0) {
      throw millpondError("MILLPOND_E_STATE_BROKEN", "the database was downgraded to the previous release", {
        remedy: "Stop this controller, and start one of that release.",
      });
    }
    const renewals = integer(row, "renewals");
    if (renewals !== count) {
      this.#renewals = { count: renewals, sinceMs: performance.now() };
    }
    return { term: integer(row, "term"), url: text(row, "leader_url"), isOurs: row["is_ours"] === true };
  }

  async resign({ id }: Candidate): Promise<void> {
    await this.#connections.query(
      "UPDATE leader SET holder = '', url = '', expires_at = '-infinity' WHERE holder = $1",
      [id],
    );
  }

  async load(): Promise<StoredState> {
    const state = await this.#connections.transaction("read-only snapshot", async (session) => {
      const table = (name: string, order: string) => session.query(`SELECT * FROM ${name} ORDER BY ${order}`);
      const [pool = {}] = await session.query(
        `SELECT identity, revision, epoch, restored_epoch, resumed_at,
           (SELECT coalesce(max(id), 0) FROM events) AS last_event FROM pool`,
      );
      return toState({
        identity: text(pool, "identity"),
        revision: integer(pool, "revision"),
        epoch: integer(pool, "epoch"),
        restoration: toRestoration(pool),
        lastEvent: integer(pool, "last_event"),
        claims: await table("claims", "arrival"),
        allocations: await table("allocations", "epoch"),
        virtualGpus: await table("virtual_gpus", "epoch, ordinal"),
        nodes: await table("nodes", `name COLLATE "C"`),
        devices: await table("devices", "node, device_index, uuid"),
        removedNodes: await table("removed_nodes", `name COLLATE "C"`),
        queues: await table("queues", `name COLLATE "C"`),
        tenants: await table("tenants", `name COLLATE "C"`),
        tokens: await table("tokens", `name COLLATE "C"`),
        signingKeys: await table("signing_keys", "revision, created_at"),
        logins: await table("logins", "created_at, id"),
      });
    });
    noteDevices(this.#knownDevices, state);
    return state;
  }

  async changesAfter(revision: number): Promise<readonly StoreChanges[] | undefined> {
    const rows = await this.#connections.queryPrepared(
      "changes",
      `SELECT pool.revision AS newest, base, content
       FROM pool LEFT JOIN changes ON changes.revision > $1
       ORDER BY changes.revision`,
      [revision],
    );
    const [first = {}] = rows;
    if (integer(first, "newest") === revision) {
      return [];
    }
    if (first["base"] !== revision) {
      return undefined;
    }
    return rows.map((row) => {
      const changes = fromRows(JSON.parse(text(row, "content")) as ChangeRows<Row>, this.#knownDevices);
      noteDevices(this.#knownDevices, changes);
      return changes;
    });
  }

  async commit(changes: StoreChanges, term: number): Promise<void> {
    const content = JSON.stringify(toRows(changes, this.#knownDevices));
    const limits = [this.#maxEvents, this.#maxAuditRecords, maxUsageRecords, this.#maxChanges];
    const outcome = await this.#writeAgain([term, content, ...limits]);
    if (outcome === "term") {
      throw termIsOver(term);
    }
    if (outcome !== "done") {
      const { revision, epoch } = changes;
      throw millpondError("MILLPOND_E_INTERNAL", `revision ${revision} or epoch ${epoch} would go back`);
    }
    noteDevices(this.#knownDevices, changes);
  }

  async listEvents({ after, subject, limit, end }: EventQuery): Promise<EventRecord[]> {
    const order = end === "oldest" ? "ASC" : "DESC";
    const rows = await this.#connections.query(
      `SELECT * FROM events WHERE id > $1 AND ($2 = '' OR subject = $2) ORDER BY id ${order} LIMIT $3`,
      [after, subject, limit],
    );
    const events = rows.map(toEvent);
    return end === "oldest" ? events : events.reverse();
  }

  async listAudit({ after, tenant, limit, fromOldest = false }: AuditQuery): Promise<AuditRecord[]> {
    const isNewest = after === 0 && !fromOldest;
    const order = isNewest ? "DESC" : "ASC";
    const rows = await this.#connections.query(
      `SELECT * FROM audit WHERE id > $1 AND ($2 = '' OR tenant = $2) ORDER BY id ${order} LIMIT $3`,
      [after, tenant, limit],
    );
    const records = rows.map(toAuditRecord);
    return isNewest ? records.reverse() : records;
  }

  async listUsage(query: UsageQuery): Promise<UsagePage> {
    const sql = "SELECT * FROM usage WHERE (ended_at, id) > ($1, $2) ORDER BY ended_at, id LIMIT $3";
    const rows = await this.#connections.query(sql, [...usagePlace(query), usagePageSize]);
    return toUsagePage(rows, query);
  }

  async close(): Promise<void> {
    await this.#connections.close();
  }

  /** Asks until there is an answer. A change that was already made is recognized by its revision, so it is made only once. */
  async #writeAgain(values: readonly (string | number)[]): Promise<unknown> {
    let failedMs: number | undefined;
    for (;;) {
      try {
        const [row] = await this.#connections.queryPrepared(
          "commit",
          "SELECT commit_change($1, $2, $3, $4, $5, $6) AS outcome",
          values,
        );
        return row?.["outcome"];
      } catch (error) {
        const isAway = errorCodeOf(error) === "MILLPOND_E_STORE_UNREACHABLE";
        failedMs ??= performance.now();
        if (!isAway || performance.now() - failedMs > commitPatienceMs) {
          throw error;
        }
        await delay(commitPauseMs);
      }
    }
  }
}

async function migratePostgres(session: Session): Promise<void> {
  await session.query("CREATE TABLE IF NOT EXISTS schema_versions (version INTEGER PRIMARY KEY)");
  const [row = {}] = await session.query("SELECT coalesce(max(version), 0) AS version FROM schema_versions");
  const missing = missingMigrations("postgres", integer(row, "version"));
  for (const { version, sql } of missing) {
    await session.query(sql);
    await session.query("INSERT INTO schema_versions VALUES ($1)", [version]);
  }
  if (missing.length > 0) {
    // A controller of the older version may still lead: from now on its writes are refused.
    await session.query("UPDATE pool SET term = term + 1");
  }
}

async function initialise(session: Session, poolKey: PoolKey | undefined): Promise<void> {
  await session.query(
    "INSERT INTO pool (id, identity, revision, epoch, ticket_key) VALUES (1, $1, 0, 0, '') ON CONFLICT DO NOTHING",
    [randomUUID()],
  );
  if (poolKey === undefined) {
    return;
  }
  const [pool = {}] = await session.query("SELECT ticket_key FROM pool FOR UPDATE");
  const unsealed = blob(pool, "ticket_key");
  const [current] = await session.query("SELECT id FROM signing_keys WHERE retires_at IS NULL");
  if (current === undefined) {
    const row = firstSigningKey(poolKey, unsealed, Date.now());
    await session.query(
      "INSERT INTO signing_keys SELECT * FROM jsonb_populate_record(NULL::signing_keys, $1::jsonb)",
      [JSON.stringify(row)],
    );
  }
  if (unsealed.byteLength > 0) {
    await session.query("UPDATE pool SET ticket_key = ''");
  }
}
