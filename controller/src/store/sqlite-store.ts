// SPDX-License-Identifier: Apache-2.0

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { closeSync, existsSync, openSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { errorCodeOf, millpondError } from "@millpond/api";
import { migrate } from "./migrations.ts";
import { writeClaimSpec } from "./claim-spec.ts";
import { readQueueSpec, readTenantSpec, writeQueueSpec, writeTenantSpec } from "./queue-spec.ts";
import {
  blob,
  integer,
  integerOrNull,
  labels,
  type Row,
  text,
  toAuditRecord,
  toClaim,
  toDevice,
  toEvent,
  toToken,
  toUsage,
  toVirtualGpu,
} from "./sqlite-rows.ts";
import type {
  AllocationRecord,
  AuditEntry,
  AuditQuery,
  AuditRecord,
  ClaimRecord,
  DeviceRecord,
  EventQuery,
  EventRecord,
  NodeRecord,
  Store,
  StoreChanges,
  StoredState,
  TokenRecord,
  UsageRecord,
} from "./store.ts";

/** File name of the database in the state directory. */
export const databaseFileName = "controller.sqlite";

/** How many times that are over are remembered. */
const maxUsageRecords = 1_000_000;

/** How many audit records are remembered. Also said in access.proto. */
const defaultMaxAuditRecords = 100_000;

export interface SqliteStoreOptions {
  /** A directory that exists. */
  readonly directory: string;
  /** How many events are remembered. Default 10000. */
  readonly maxEvents?: number;
  /** How many audit records are remembered. Default 100000. */
  readonly maxAuditRecords?: number;
}

/**
 * The state in one SQLite file, for one controller on one machine. The write-ahead log is flushed to the disk at every
 * commit, and the file stays locked for as long as the process lives, so two controllers never share it.
 */
export class SqliteStore implements Store {
  readonly #database: DatabaseSync;
  readonly #maxEvents: number;
  readonly #maxAuditRecords: number;
  readonly #statements = new Map<string, StatementSync>();
  /** Devices of nodes as they were last written: most changes of a node are of its revision only. */
  readonly #written = new Map<string, NodeRecord["devices"]>();

  private constructor(database: DatabaseSync, options: SqliteStoreOptions) {
    this.#database = database;
    this.#maxEvents = options.maxEvents ?? 10_000;
    this.#maxAuditRecords = options.maxAuditRecords ?? defaultMaxAuditRecords;
  }

  /**
   * Opens the store; makes it, with a new identity and key, where there is none.
   *
   * @throws MILLPOND_E_STATE_LOCKED, MILLPOND_E_STATE_NEWER, MILLPOND_E_STATE_BROKEN
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
      migrate(database);
      const store = new SqliteStore(database, options);
      store.#initialise();
      return store;
    } catch (cause) {
      database?.close();
      throw stateError(cause, `the state in ${path} cannot be opened`);
    }
  }

  async load(): Promise<StoredState> {
    return this.#reading(() => {
      const pool = this.#get("SELECT identity, revision, epoch, ticket_key FROM pool");
      const lastEvent = this.#get("SELECT coalesce(max(id), 0) AS id FROM events");
      return {
        identity: text(pool, "identity"),
        ticketKey: blob(pool, "ticket_key"),
        revision: integer(pool, "revision"),
        epoch: integer(pool, "epoch"),
        lastEvent: integer(lastEvent, "id"),
        claims: this.#all("SELECT * FROM claims ORDER BY arrival").map(toClaim),
        allocations: this.#loadAllocations(),
        nodes: this.#loadNodes(),
        queues: this.#all("SELECT * FROM queues ORDER BY name").map((row) =>
          readQueueSpec(text(row, "name"), text(row, "spec")),
        ),
        tenants: this.#all("SELECT * FROM tenants ORDER BY name").map((row) =>
          readTenantSpec(text(row, "name"), text(row, "spec")),
        ),
        tokens: this.#all("SELECT * FROM tokens ORDER BY name").map(toToken),
      };
    });
  }

  async commit(changes: StoreChanges): Promise<void> {
    try {
      this.#run("BEGIN IMMEDIATE");
      this.#write(changes);
      this.#run("COMMIT");
      for (const { name, devices } of changes.nodes) {
        this.#written.set(name, devices);
      }
    } catch (cause) {
      if (this.#database.isTransaction) {
        this.#run("ROLLBACK");
      }
      throw stateError(cause, "the change could not be written to the state directory");
    }
  }

  async listEvents({ after, subject, limit, end }: EventQuery): Promise<EventRecord[]> {
    const order = end === "oldest" ? "ASC" : "DESC";
    const condition = subject === "" ? "id > ?" : "id > ? AND subject = ?";
    const values = subject === "" ? [after, limit] : [after, subject, limit];
    const sql = `SELECT * FROM events WHERE ${condition} ORDER BY id ${order} LIMIT ?`;
    const events = this.#reading(() => this.#all(sql, ...values)).map(toEvent);
    return end === "oldest" ? events : events.reverse();
  }

  async listAudit({ after, tenant, limit }: AuditQuery): Promise<AuditRecord[]> {
    const order = after === 0 ? "DESC" : "ASC";
    const sql = `SELECT * FROM audit WHERE id > ? AND (? = '' OR tenant = ?) ORDER BY id ${order} LIMIT ?`;
    const records = this.#reading(() => this.#all(sql, after, tenant, tenant, limit)).map(toAuditRecord);
    return after === 0 ? records.reverse() : records;
  }

  async listUsage({ from, to }: { readonly from: number; readonly to: number }): Promise<UsageRecord[]> {
    const sql = "SELECT * FROM usage WHERE ended_at > ? AND began_at < ? ORDER BY ended_at, id";
    return this.#reading(() => this.#all(sql, from, to)).map(toUsage);
  }

  async close(): Promise<void> {
    this.#database.close();
  }

  #initialise(): void {
    const { privateKey } = generateKeyPairSync("ed25519");
    this.#run(
      "INSERT INTO pool (id, identity, revision, epoch, ticket_key) VALUES (1, ?, 0, 0, ?) ON CONFLICT DO NOTHING",
      randomUUID(),
      privateKey.export({ format: "der", type: "pkcs8" }),
    );
  }

  #write(changes: StoreChanges): void {
    const { revision, epoch } = changes;
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
    for (const removed of changes.removedAllocations) {
      this.#run("DELETE FROM allocations WHERE epoch = ?", removed);
    }
    this.#writeSpecs("queues", changes.queues, writeQueueSpec, changes.removedQueues);
    this.#writeSpecs("tenants", changes.tenants, writeTenantSpec, changes.removedTenants);
    for (const node of changes.nodes) {
      this.#writeNode(node);
    }
    for (const claim of changes.claims) {
      this.#writeClaim(claim);
    }
    for (const allocation of changes.allocations) {
      this.#writeAllocation(allocation);
    }
    for (const name of changes.forgottenClaims) {
      this.#run("DELETE FROM claims WHERE name = ?", name);
    }
    for (const { id, at, kind, subject, message } of changes.events) {
      this.#run(
        "INSERT INTO events (id, at, kind, subject, message) VALUES (?, ?, ?, ?, ?)",
        id,
        at,
        kind,
        subject,
        message,
      );
    }
    for (const name of changes.removedTokens) {
      this.#run("DELETE FROM tokens WHERE name = ?", name);
    }
    for (const token of changes.tokens) {
      this.#writeToken(token);
    }
    for (const entry of changes.audit) {
      this.#writeAudit(entry);
    }
    for (const each of changes.usage) {
      this.#writeUsage(each);
    }
    this.#forgetOldest(changes);
  }

  #forgetOldest({ events, audit, usage }: StoreChanges): void {
    const last = events.at(-1);
    if (last !== undefined) {
      this.#run("DELETE FROM events WHERE id <= ?", last.id - this.#maxEvents);
    }
    if (audit.length > 0) {
      this.#run("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", this.#maxAuditRecords);
    }
    if (usage.length > 0) {
      this.#run("DELETE FROM usage WHERE id <= (SELECT max(id) FROM usage) - ?", maxUsageRecords);
    }
  }

  #writeSpecs<T extends { readonly name: string }>(
    table: "queues" | "tenants",
    specs: readonly T[],
    write: (spec: T) => string,
    removed: readonly string[],
  ): void {
    for (const name of removed) {
      this.#run(`DELETE FROM ${table} WHERE name = ?`, name);
    }
    for (const spec of specs) {
      this.#run(
        `INSERT INTO ${table} (name, spec) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET spec = excluded.spec`,
        spec.name,
        write(spec),
      );
    }
  }

  #writeToken(token: TokenRecord): void {
    this.#run(
      `INSERT INTO tokens (name, hash, role, tenant, created_at, expires_at, created_by)
       VALUES (?, ?, ?, ?, ?, ?, ?)`,
      token.name,
      token.hash,
      token.role,
      token.tenant,
      token.createdAt,
      token.expiresAt,
      token.createdBy,
    );
  }

  #writeAudit({ at, who, role, tenant, what, subject, why, result }: AuditEntry): void {
    this.#run(
      "INSERT INTO audit (at, who, role, tenant, what, subject, why, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      at,
      who,
      role,
      tenant,
      what,
      subject,
      why,
      result,
    );
  }

  #writeUsage(usage: UsageRecord): void {
    this.#run(
      `INSERT INTO usage (kind, claim, tenant, queue, gpu_milli, began_at, ended_at, active_seconds)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
      usage.kind,
      usage.claim,
      usage.tenant,
      usage.queue,
      usage.gpuMilli,
      usage.beganAt,
      usage.endedAt,
      usage.activeSeconds,
    );
  }

  #writeNode(node: NodeRecord): void {
    this.#run(
      `INSERT INTO nodes (name, agent_url, agent_version, hostname, boot_id, cordoned, cordon_reason, labels,
         agent_labels, revision, joined_at)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (name) DO UPDATE SET agent_url = excluded.agent_url, agent_version = excluded.agent_version,
         hostname = excluded.hostname, boot_id = excluded.boot_id, cordoned = excluded.cordoned,
         cordon_reason = excluded.cordon_reason, labels = excluded.labels, agent_labels = excluded.agent_labels,
         revision = excluded.revision, joined_at = excluded.joined_at`,
      node.name,
      node.agentUrl,
      node.agentVersion,
      node.hostname,
      node.bootId,
      Number(node.isCordoned),
      node.cordonReason,
      JSON.stringify(node.labels),
      JSON.stringify(node.agentLabels),
      node.revision,
      node.joinedAt,
    );
    if (this.#written.get(node.name) === node.devices) {
      return;
    }
    for (const device of node.devices) {
      this.#writeDevice(node.name, device);
    }
    const uuids = JSON.stringify(node.devices.map(({ uuid }) => uuid));
    this.#run(
      "DELETE FROM devices WHERE node = ? AND uuid NOT IN (SELECT value FROM json_each(?))",
      node.name,
      uuids,
    );
  }

  #writeDevice(node: string, device: DeviceRecord): void {
    this.#run(
      `INSERT INTO devices (node, uuid, device_index, name, kind, memory_bytes, pci_bus_id, compute_capability,
         multiprocessors, driver_version, cuda_version, healthy, health_reason, cordoned, numa_node, pcie_switch,
         nvlink_domain)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (node, uuid) DO UPDATE SET device_index = excluded.device_index, name = excluded.name,
         kind = excluded.kind, memory_bytes = excluded.memory_bytes, pci_bus_id = excluded.pci_bus_id,
         compute_capability = excluded.compute_capability, multiprocessors = excluded.multiprocessors,
         driver_version = excluded.driver_version, cuda_version = excluded.cuda_version,
         healthy = excluded.healthy, health_reason = excluded.health_reason, cordoned = excluded.cordoned,
         numa_node = excluded.numa_node, pcie_switch = excluded.pcie_switch,
         nvlink_domain = excluded.nvlink_domain`,
      node,
      device.uuid,
      device.index,
      device.name,
      device.kind,
      device.memoryBytes,
      device.pciBusId,
      device.computeCapability,
      device.multiprocessors,
      device.driverVersion,
      device.cudaVersion,
      Number(device.isHealthy),
      device.healthReason,
      Number(device.isCordoned),
      device.numaNode,
      device.pcieSwitch,
      device.nvlinkDomain,
    );
  }

  #writeClaim(claim: ClaimRecord): void {
    this.#run(
      `INSERT INTO claims (name, arrival, spec, state, reason, version, created_at, bound_at, ended_at, waiting_since,
         preempt_at, requeues)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (name) DO UPDATE SET arrival = excluded.arrival, spec = excluded.spec, state = excluded.state,
         reason = excluded.reason, version = excluded.version, created_at = excluded.created_at,
         bound_at = excluded.bound_at, ended_at = excluded.ended_at, waiting_since = excluded.waiting_since,
         preempt_at = excluded.preempt_at, requeues = excluded.requeues`,
      claim.name,
      claim.arrival,
      writeClaimSpec(claim),
      claim.state,
      claim.reason,
      claim.version,
      claim.createdAt,
      claim.boundAt,
      claim.endedAt,
      claim.waitingSince,
      claim.preemptAt,
      claim.requeues,
    );
  }

  #writeAllocation({ claim, node, epoch, grantedAt, releasedRevision, devices }: AllocationRecord): void {
    this.#run(
      `INSERT INTO allocations (epoch, claim, node, granted_at, released_revision) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (epoch) DO UPDATE SET released_revision = excluded.released_revision`,
      epoch,
      claim,
      node,
      grantedAt,
      releasedRevision,
    );
    for (const [ordinal, { uuid, memoryBytes, computePercent }] of devices.entries()) {
      this.#run(
        `INSERT INTO virtual_gpus (epoch, ordinal, node, uuid, memory_bytes, compute_percent)
         VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (epoch, ordinal) DO NOTHING`,
        epoch,
        ordinal,
        node,
        uuid,
        memoryBytes,
        computePercent,
      );
    }
  }

  #loadAllocations(): AllocationRecord[] {
    const devices = Map.groupBy(this.#all("SELECT * FROM virtual_gpus ORDER BY epoch, ordinal"), (row) =>
      integer(row, "epoch"),
    );
    return this.#all("SELECT * FROM allocations ORDER BY epoch").map((row) => {
      const epoch = integer(row, "epoch");
      return {
        claim: text(row, "claim"),
        node: text(row, "node"),
        epoch,
        grantedAt: integer(row, "granted_at"),
        releasedRevision: integerOrNull(row, "released_revision"),
        devices: (devices.get(epoch) ?? []).map(toVirtualGpu),
      };
    });
  }

  #loadNodes(): NodeRecord[] {
    const devices = Map.groupBy(this.#all("SELECT * FROM devices ORDER BY node, device_index, uuid"), (row) =>
      text(row, "node"),
    );
    return this.#all("SELECT * FROM nodes ORDER BY name").map((row) => {
      const name = text(row, "name");
      return {
        name,
        agentUrl: text(row, "agent_url"),
        agentVersion: text(row, "agent_version"),
        hostname: text(row, "hostname"),
        bootId: text(row, "boot_id"),
        isCordoned: integer(row, "cordoned") === 1,
        cordonReason: text(row, "cordon_reason"),
        labels: labels(row, "labels"),
        agentLabels: labels(row, "agent_labels"),
        revision: integer(row, "revision"),
        joinedAt: integer(row, "joined_at"),
        devices: (devices.get(name) ?? []).map(toDevice),
      };
    });
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

  #reading<T>(read: () => T): T {
    try {
      return read();
    } catch (cause) {
      throw stateError(cause, "the state directory could not be read");
    }
  }
}

/**
 * Makes the file before SQLite would, which would make it readable for all: it holds the key that signs tickets. A file
 * that exists is not even opened, because closing it again would give up this process's locks on it.
 */
function makePrivateFile(path: string): void {
  if (!existsSync(path)) {
    closeSync(openSync(path, "a", 0o600));
  }
}

/** Turns what SQLite throws into an error of ours; leaves ours as they are. */
function stateError(cause: unknown, what: string): unknown {
  if (errorCodeOf(cause) !== undefined) {
    return cause;
  }
  const message = cause instanceof Error ? cause.message : String(cause);
  return isBusy(cause)
    ? millpondError("MILLPOND_E_STATE_LOCKED", `${what}: another process holds it`, { cause })
    : millpondError("MILLPOND_E_STATE_BROKEN", `${what}: ${message}`, { cause });
}

const sqliteBusy = 5;

function isBusy(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && Number(error.errcode) % 256 === sqliteBusy;
}
