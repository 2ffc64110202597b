// SPDX-License-Identifier: Apache-2.0

// The interface of stores for the state. Times are Unix seconds.

import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import type {
  AllocationRecord,
  AuditEntry,
  AuditRecord,
  ClaimRecord,
  EventRecord,
  LoginRecord,
  NodeRecord,
  RemovedNodeRecord,
  SigningKeyRecord,
  TokenRecord,
  UsageRecord,
} from "../domain/records.ts";

export interface AuditQuery {
  /** Only records with a greater id, oldest first; 0: the newest. */
  readonly after: number;
  /** Only those of tokens for this tenant; empty: all. */
  readonly tenant: string;
  readonly limit: number;
  /** With `after` 0: the oldest instead of the newest. Default false. */
  readonly fromOldest?: boolean;
}

/** A place in the order of the records of usage. */
export interface UsagePlace {
  readonly endedAt: number;
  readonly id: number;
}

export interface UsageQuery {
  readonly from: number;
  readonly to: number;
  /** Absent: the first page. */
  readonly after?: UsagePlace | undefined;
}

/** A bounded number of records, found without looking at more. */
export interface UsagePage {
  readonly records: readonly UsageRecord[];
  /** Absent: this was the last one. */
  readonly next?: UsagePlace | undefined;
}

/** How the state was last restored from an older one. */
export interface Restoration {
  /** The last epoch of the older state. */
  readonly epoch: number;
  /** Where epochs, revisions and terms resumed: all earlier ones are lower. */
  readonly resumedAt: number;
}

/** A completed backup. */
export interface Backup {
  readonly path: string;
  readonly bytes: number;
  /** Revision of the state in it. */
  readonly revision: number;
}

/** Everything except the events, the audit and past usage. */
export interface StoredState {
  /** UUID of this state. */
  readonly identity: string;
  readonly revision: number;
  readonly epoch: number;
  /** Undefined: never restored. */
  readonly restoration: Restoration | undefined;
  /** Id of the last event; 0: none yet. */
  readonly lastEvent: number;
  readonly claims: readonly ClaimRecord[];
  readonly allocations: readonly AllocationRecord[];
  readonly nodes: readonly NodeRecord[];
  /** Including nodes that have joined again. */
  readonly removedNodes: readonly RemovedNodeRecord[];
  readonly queues: readonly QueueSpec[];
  readonly tenants: readonly TenantSpec[];
  readonly tokens: readonly TokenRecord[];
  /** In order of their creation. */
  readonly signingKeys: readonly SigningKeyRecord[];
  /** In order of their creation. */
  readonly logins: readonly LoginRecord[];
}

/** An atomic change of the state. */
export interface StoreChanges {
  /** The new revision, greater than the last one. */
  readonly revision: number;
  /** The new epoch, not less than the last one. */
  readonly epoch: number;
  /** New and changed ones. */
  readonly nodes: readonly NodeRecord[];
  /** New ones, and those that were removed again. Their nodes and devices are deleted; they have no allocations. */
  readonly removedNodes: readonly RemovedNodeRecord[];
  /** New and changed ones. */
  readonly claims: readonly ClaimRecord[];
  /** Claims to delete; they have no allocation. */
  readonly forgottenClaims: readonly string[];
  /** New and changed ones; the sizes of an allocation's devices may change, the devices do not. */
  readonly allocations: readonly AllocationRecord[];
  /** Epochs of deleted allocations. */
  readonly removedAllocations: readonly number[];
  /** New and changed ones. */
  readonly queues: readonly QueueSpec[];
  readonly removedQueues: readonly string[];
  /** New and changed ones. */
  readonly tenants: readonly TenantSpec[];
  readonly removedTenants: readonly string[];
  /** New ones; a changed one is also among the removed ones, which are applied first. */
  readonly tokens: readonly TokenRecord[];
  readonly removedTokens: readonly string[];
  /** New and changed ones; none is removed. */
  readonly signingKeys: readonly SigningKeyRecord[];
  /** New and changed ones. */
  readonly logins: readonly LoginRecord[];
  readonly removedLogins: readonly string[];
  /** New ones. */
  readonly audit: readonly AuditEntry[];
  /** New ones. */
  readonly usage: readonly UsageRecord[];
  readonly events: readonly EventRecord[];
}

export interface EventQuery {
  /** Only events with a greater id. */
  readonly after: number;
  /** Only events of this subject; empty: all. */
  readonly subject: string;
  readonly limit: number;
  /** `oldest`: the first events after `after`, up to the limit; `newest`: the last ones. Ascending by id either way. */
  readonly end: "oldest" | "newest";
}

/** A candidate in the leader election. */
export interface Candidate {
  /** UUID, for one term: a former leader comes back with another one. */
  readonly id: string;
  /** Base URL of the candidate. */
  readonly url: string;
}

/** The current leader, which is the only controller that writes. */
export interface Leadership {
  /** Increases whenever a controller becomes the leader. 0: there never was one. */
  readonly term: number;
  /** URL of the leader; empty: there is none. */
  readonly url: string;
  /** Whether it is this controller. */
  readonly isOurs: boolean;
}

/** The store of the state. Several controllers may share it; one of them is the leader. */
export interface Store {
  /** Duration of the leader's lease unless it is renewed; infinite where the store belongs to one controller. */
  readonly leaseMs: number;

  /**
   * Becomes the leader or renews its lease, unless another controller is the leader.
   *
   * @throws MILLPOND_E_STORE_UNREACHABLE
   */
  campaign(candidate: Candidate): Promise<Leadership>;

  /** Releases the lease, so that another controller can become the leader immediately. */
  resign(candidate: Candidate): Promise<void>;

  /** Reads everything. */
  load(): Promise<StoredState>;

  /**
   * Reads the changes committed after a revision, in order; undefined: the store no longer has all of them. Audit and usage
   * are left out.
   */
  changesAfter(revision: number): Promise<readonly StoreChanges[] | undefined>;

  /**
   * Makes a change durable: once the promise is fulfilled, the change survives any crash; when it is rejected, the state is
   * unchanged.
   *
   * @param term term of the leader
   * @throws MILLPOND_E_STATE_BROKEN; MILLPOND_E_NOT_LEADER when another controller has become the leader, and
   * MILLPOND_E_STORE_UNREACHABLE when the store fails: then the outcome is unknown, and the leader must resign
   */
  commit(changes: StoreChanges, term: number): Promise<void>;

  /** Reads events; the store deletes the oldest ones beyond its limit. */
  listEvents(query: EventQuery): Promise<EventRecord[]>;

  /** Reads the audit, ascending by id; the store deletes the oldest records beyond its limit. */
  listAudit(query: AuditQuery): Promise<AuditRecord[]>;

  /** Reads a page of the usage that overlaps a period, oldest end first; the store deletes the oldest beyond its limit. */
  listUsage(query: UsageQuery): Promise<UsagePage>;

  /** Writes a backup into a new file. Absent if the database has tools of its own for backups. */
  backUp?(to: string): Promise<Backup>;

  close(): Promise<void>;
}
