// SPDX-License-Identifier: Apache-2.0

import { randomUUID } from "node:crypto";
import { closeSync, fdatasync, openSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { promisify } from "node:util";
import { auditHash, millpondError } from "@millpond/api";
import { makePrivateFile } from "@millpond/platform";
import { type ChangeRows, type KnownDevices, noteDevices, type TableName, toRows } from "./change-rows.ts";
import { writeBackup } from "./recovery/backup.ts";
import { firstSigningKey } from "./first-signing-key.ts";
import { migrateSqlite } from "./migrations.ts";
import { defaultMaxAuditRecords, defaultMaxEvents, maxUsageRecords } from "./retention.ts";
import {
  blob,
  fromAuditEntry,
  integer,
  type NewRow,
  type Row,
  text,
  toAuditRecord,
  toEvent,
  toRestoration,
  toState,
} from "./rows.ts";
import type {
  AuditQuery,
  Backup,
  Candidate,
  EventQuery,
  Leadership,
  Store,
  StoreChanges,
  StoredState,
  UsagePage,
  UsageQuery,
} from "../state/store.ts";
import { PoolKey, poolKeyPath } from "../state/pool-key.ts";
import { databaseFileName, fullError, isFull, stateError } from "./state-file.ts";
import type { AuditEntry, AuditRecord, EventRecord } from "../domain/records.ts";
import { termIsOver } from "../state/store-errors.ts";
import { toUsagePage, usagePageSize, usagePlace } from "./usage-pages.ts";

const flushFile = promisify(fdatasync);

/**
 * The number of pages in the write-ahead log at which they are copied into the database, which blocks all callers. The
 * same pages are written again and again, so a higher limit means less copying. 32 MiB.
 */
const checkpointPages = 8192;

/**
 * Keys of the tables in which a new row may replace an existing one; in other tables it is refused. `isFixed`: an
 * existing row never changes.
 */
const keys: Partial<
  Readonly<Record<TableName, { readonly columns: readonly string[]; readonly isFixed?: true }>>
> = {
  queues: { columns: ["name"] },
  tenants: { columns: ["name"] },
  nodes: { columns: ["name"] },
  devices: { columns: ["node", "uuid"] },
  removed_nodes: { columns: ["name"] },
  signing_keys: { columns: ["id"] },
  logins: { columns: ["id"] },
  claims: { columns: ["name"] },
  allocations: { columns: ["epoch"] },
  virtual_gpus: { columns: ["epoch", "ordinal"], isFixed: true },
};

export interface SqliteStoreOptions {
  /** A directory that exists. */
  readonly directory: string;
  /** Seals the secrets of the state. Default: the key of the directory, which is created if there is none. */
  readonly poolKey?: PoolKey;
  /** How many events are remembered. Default 10000. */
  readonly maxEvents?: number;
  /** How many audit records are remembered. Default 100000. */
  readonly maxAuditRecords?: number;
}

/**
 * The state in one SQLite file, for one controller on one machine. The write-ahead log is flushed to the disk at every
 * commit, by another thread, so that calls are still read and answered. The file stays locked for as long as the
 * process lives, so two controllers never share it.
 */
export class SqliteStore implements Store {
  readonly #database: DatabaseSync;
  readonly #directory: string;
  readonly #poolKey: PoolKey;
  /** The write-ahead log. */
  readonly #log: number;
  /** Resolves when the last commit is on disk; rejected: the state of the disk is unknown. */
  #flushed: Promise<void> = Promise.resolve();
  readonly #maxEvents: number;
  readonly #maxAuditRecords: number;
  readonly #statements = new Map<string, StatementSync>();
  readonly #upserts = new Map<TableName, string>();
  readonly #knownDevices: KnownDevices = new Map();
  readonly #term: number;
  /** The file is locked for as long as the store is open. */
  readonly leaseMs = Number.POSITIVE_INFINITY;

  private constructor(database: DatabaseSync, log: number, poolKey: PoolKey, options: SqliteStoreOptions) {
    this.#database = database;
    this.#poolKey = poolKey;
    this.#directory = options.directory;
    this.#log = log;
    this.#term = integer(this.#get("SELECT term FROM pool"), "term");
    this.#maxEvents = options.maxEvents ?? defaultMaxEvents;
    this.#maxAuditRecords = options.maxAuditRecords ?? defaultMaxAuditRecords;
  }

  /**
   * Opens the store, and creates it with a new identity and key if there is none.
   *
   * @throws MILLPOND_E_STATE_LOCKED, MILLPOND_E_STATE_NEWER, MILLPOND_E_STATE_BROKEN, MILLPOND_E_POOL_KEY
   */
  static open(options: SqliteStoreOptions): SqliteStore {
    const path = join(options.directory, databaseFileName);
    let database: DatabaseSync | undefined;
    try {
      makePrivateFile(path);
      database = new DatabaseSync(path, { enableForeignKeyConstraints: true, timeout: 0 });
      database.exec("PRAGMA locking_mode = EXCLUSIVE");
      database.exec("PRAGMA journal_mode = WAL");
      database.exec("PRAGMA synchronous = FULL");
      // The lock is only taken by the first write.
      database.exec("BEGIN IMMEDIATE; COMMIT");
      migrateSqlite(database);
      const poolKey = options.poolKey ?? PoolKey.readOrMake(poolKeyPath(options.directory));
      initialise(database, poolKey);
      // From now on SQLite's commits do not wait for the disk: this store flushes it.
      database.exec(`PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = ${checkpointPages}`);
      return new SqliteStore(database, openSync(`${path}-wal`, "r"), poolKey, options);
    } catch (cause) {
      database?.close();
      const what = `the state in ${path} cannot be opened`;
      throw isFull(cause) ? fullError(what, options.directory, cause) : stateError(cause, what);
    }
  }

  async campaign({ url }: Candidate): Promise<Leadership> {
    return { term: this.#term, url, isOurs: true };
  }

  async resign(): Promise<void> {
    // The next controller that opens the store is the leader.
  }

  async load(): Promise<StoredState> {
    return await this.#reading(() => {
      const table = (name: string, order: string) =>
        this.#prepare(`SELECT * FROM ${name} ORDER BY ${order}`).iterate();
      const pool = this.#get("SELECT * FROM pool");
      const state = toState({
        identity: text(pool, "identity"),
        revision: integer(pool, "revision"),
        epoch: integer(pool, "epoch"),
        restoration: toRestoration(pool),
        lastEvent: integer(this.#get("SELECT coalesce(max(id), 0) AS id FROM events"), "id"),
        claims: table("claims", "arrival"),
        allocations: table("allocations", "epoch"),
        virtualGpus: table("virtual_gpus", "epoch, ordinal"),
        nodes: table("nodes", "name"),
        devices: table("devices", "node, device_index, uuid"),
        removedNodes: table("removed_nodes", "name"),
        queues: table("queues", "name"),
        tenants: table("tenants", "name"),
        tokens: table("tokens", "name"),
        signingKeys: table("signing_keys", "revision, created_at"),
        logins: table("logins", "created_at, id"),
      });
      noteDevices(this.#knownDevices, state);
      return state;
    });
  }

  async changesAfter(revision: number): Promise<readonly StoreChanges[] | undefined> {
    const current = await this.#reading(() => integer(this.#get("SELECT revision FROM pool"), "revision"));
    // There are no other writers, so no changes are kept for followers.
    return revision === current ? [] : undefined;
  }

  async commit(changes: StoreChanges, term: number): Promise<void> {
    await this.#flushed;
    try {
      this.#run("BEGIN IMMEDIATE");
      this.#write(changes, term);
      this.#run("COMMIT");
      noteDevices(this.#knownDevices, changes);
    } catch (cause) {
      if (this.#database.isTransaction) {
        this.#run("ROLLBACK");
      }
      throw isFull(cause)
        ? fullError("the change could not be written", this.#directory, cause)
        : stateError(cause, "the change could not be written to the state directory");
    }
    this.#flushed = this.#flush();
    await this.#flushed;
  }

  /** After a failure the state of the disk is unknown, and a retry would not reveal it: all later operations fail. */
  async #flush(): Promise<void> {
    try {
      await flushFile(this.#log);
    } catch (cause) {
      const what =
        "the state directory could not be flushed, and is not used until the controller is started again";
      throw stateError(cause, what);
    }
  }

  async listEvents({ after, subject, limit, end }: EventQuery): Promise<EventRecord[]> {
    const order = end === "oldest" ? "ASC" : "DESC";
    const condition = subject === "" ? "id > ?" : "id > ? AND subject = ?";
    const values = subject === "" ? [after, limit] : [after, subject, limit];
    const sql = `SELECT * FROM events WHERE ${condition} ORDER BY id ${order} LIMIT ?`;
    const rows = await this.#reading(() => this.#all(sql, ...values));
    const events = rows.map(toEvent);
    return end === "oldest" ? events : events.reverse();
  }

  async listAudit({ after, tenant, limit, fromOldest = false }: AuditQuery): Promise<AuditRecord[]> {
    const isNewest = after === 0 && !fromOldest;
    const order = isNewest ? "DESC" : "ASC";
    const sql = `SELECT * FROM audit WHERE id > ? AND (? = '' OR tenant = ?) ORDER BY id ${order} LIMIT ?`;
    const rows = await this.#reading(() => this.#all(sql, after, tenant, tenant, limit));
    const records = rows.map(toAuditRecord);
    return isNewest ? records.reverse() : records;
  }

  async listUsage(query: UsageQuery): Promise<UsagePage> {
    const sql = "SELECT * FROM usage WHERE (ended_at, id) > (?, ?) ORDER BY ended_at, id LIMIT ?";
    const rows = await this.#reading(() => this.#all(sql, ...usagePlace(query), usagePageSize));
    return toUsagePage(rows, query);
  }

  async backUp(to: string): Promise<Backup> {
    await this.#flushed;
    return await writeBackup(this.#database, { directory: this.#directory, poolKey: this.#poolKey, to });
  }

  async close(): Promise<void> {
    await this.#flushed.catch(() => undefined);
    this.#database.close();
    closeSync(this.#log);
  }

  #write(changes: StoreChanges, term: number): void {
    const rows = toRows(changes, this.#knownDevices);
    const { revision, epoch, written, removed } = rows;
    if (term !== this.#term) {
      throw termIsOver(term);
    }
    const counted = this.#run(
      "UPDATE pool SET revision = ?, epoch = ? WHERE revision < ? AND epoch <= ?",
      revision,
      epoch,
      revision,
      epoch,
    );
    if (counted !== 1) {
      throw millpondError("MILLPOND_E_INTERNAL", `revision ${revision} or epoch ${epoch} would go back`);
    }
    this.#remove("allocations", "epoch", removed.allocations);
    this.#remove("nodes", "name", removed.nodes);
    this.#remove("queues", "name", removed.queues);
    this.#remove("tenants", "name", removed.tenants);
    this.#remove("tokens", "name", removed.tokens);
    this.#remove("logins", "id", removed.logins);
    // Before any is written, so that each takes the others into account.
    for (const row of written.virtual_gpus) {
      this.#removeResized(row);
    }
    for (const [table, news] of Object.entries({ ...written, audit: this.#chain(changes.audit) }) as [
      TableName,
      readonly NewRow[],
    ][]) {
      for (const row of news) {
        this.#put(table, row);
      }
    }
    for (const { node, uuids } of rows.deviceLists) {
      const others = "node = ? AND uuid NOT IN (SELECT value FROM json_each(?))";
      this.#run(`DELETE FROM devices WHERE ${others}`, node, JSON.stringify(uuids));
    }
    this.#remove("claims", "name", removed.claims);
    this.#forgetOldest(rows);
  }

  /** The rows of audit records, each with its hash. */
  #chain(entries: readonly AuditEntry[]): NewRow[] {
    if (entries.length === 0) {
      return [];
    }
    const [last] = this.#all("SELECT hash FROM audit ORDER BY id DESC LIMIT 1");
    let previous = last === undefined ? "" : text(last, "hash");
    return entries.map((entry) => {
      const hash = auditHash(previous, entry);
      const row = { ...fromAuditEntry(entry), previous_hash: previous, hash };
      previous = hash;
      return row;
    });
  }

  #forgetOldest({ written: { events, audit, usage } }: ChangeRows): void {
    const forget = (table: TableName, most: number) =>
      this.#run(`DELETE FROM ${table} WHERE id <= (SELECT max(id) FROM ${table}) - ?`, most);
    if (events.length > 0) {
      forget("events", this.#maxEvents);
    }
    if (audit.length > 0) {
      forget("audit", this.#maxAuditRecords);
    }
    if (usage.length > 0) {
      forget("usage", maxUsageRecords);
    }
  }

  #remove(table: TableName, key: string, values: readonly (string | number)[]): void {
    for (const value of values) {
      this.#run(`DELETE FROM ${table} WHERE ${key} = ?`, value);
    }
  }

  /** A vGPU whose size has changed. */
  #removeResized({ epoch, ordinal, memory_bytes, compute_percent }: NewRow): void {
    this.#run(
      "DELETE FROM virtual_gpus WHERE epoch = ? AND ordinal = ? AND (memory_bytes <> ? OR compute_percent <> ?)",
      epoch ?? null,
      ordinal ?? null,
      memory_bytes ?? null,
      compute_percent ?? null,
    );
  }

  #put(table: TableName, row: NewRow): void {
    let sql = this.#upserts.get(table);
    if (sql === undefined) {
      sql = makeUpsert(table, Object.keys(row));
      this.#upserts.set(table, sql);
    }
    this.#run(sql, ...Object.values(row));
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #run(sql: string, ...values: (string | number | bigint | Uint8Array | null)[]): number {
    return Number(this.#prepare(sql).run(...values).changes);
  }

  #all(sql: string, ...values: (string | number)[]): Row[] {
    return this.#prepare(sql).all(...values);
  }

  #get(sql: string): Row {
    const row = this.#prepare(sql).get();
    if (row === undefined) {
      throw millpondError("MILLPOND_E_STATE_BROKEN", `the state has no row for ${sql}`);
    }
    return row;
  }

  /** Data that was read is already on disk. */
  async #reading<T>(read: () => T): Promise<T> {
    await this.#flushed;
    try {
      return read();
    } catch (cause) {
      throw stateError(cause, "the state directory could not be read");
    }
  }
}

/** Gives a new state its identity and key, and this process its term. */
function initialise(database: DatabaseSync, poolKey: PoolKey): void {
  // The pages and the log entries of an unsealed key are overwritten.
  database.exec("PRAGMA secure_delete = ON; BEGIN IMMEDIATE");
  try {
    database
      .prepare(
        "INSERT INTO pool (id, identity, revision, epoch, ticket_key) VALUES (1, ?, 0, 0, x'') ON CONFLICT DO NOTHING",
      )
      .run(randomUUID());
    const unsealed = blob(database.prepare("SELECT ticket_key FROM pool").get() ?? {}, "ticket_key");
    const current = database.prepare("SELECT 1 FROM signing_keys WHERE retires_at IS NULL").get();
    if (current === undefined) {
      const row = firstSigningKey(poolKey, unsealed, Date.now());
      database.prepare(makeUpsert("signing_keys", Object.keys(row))).run(...Object.values(row));
    }
    if (unsealed.byteLength > 0) {
      database.exec("UPDATE pool SET ticket_key = x''");
    }
    database.exec("UPDATE pool SET term = term + 1");
    database.exec("COMMIT; PRAGMA secure_delete = OFF");
    if (unsealed.byteLength > 0) {
      database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    }
  } catch (error) {
    if (database.isTransaction) {
      database.exec("ROLLBACK");
    }
    throw error;
  }
}

function makeUpsert(table: TableName, columns: readonly string[]): string {
  const insert = `INSERT INTO ${table} (${columns.join(", ")}) VALUES (${columns.map(() => "?").join(", ")})`;
  const key = keys[table];
  if (key === undefined) {
    return insert;
  }
  if (key.isFixed) {
    return `${insert} ON CONFLICT (${key.columns.join(", ")}) DO NOTHING`;
  }
  // Assigning a key column, even its current value, makes SQLite search for all rows that reference it.
  const values = columns.filter((column) => !key.columns.includes(column));
  const update = values.map((column) => `${column} = excluded.${column}`).join(", ");
  return `${insert} ON CONFLICT (${key.columns.join(", ")}) DO UPDATE SET ${update}`;
}
