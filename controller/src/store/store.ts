// SPDX-License-Identifier: Apache-2.0

// What the controller keeps over restarts, and what a place to keep it in must do. Records are values: whoever changes
// one makes a new one. Times are Unix seconds, sizes are bytes.

import type { Labels, QueueSpec, TenantSpec } from "@millpond/scheduler";
import type { Role } from "../callers.ts";
import type { ClaimSpec } from "./claim-spec.ts";

export type ClaimRecordState = "dormant" | "pending" | "bound" | "released" | "failed";

export interface ClaimRecord extends ClaimSpec {
  /** Revision at which it was made, or asked anew: the order of arrival. */
  readonly arrival: number;
  readonly state: ClaimRecordState;
  /** How it ended, or why what it holds will be taken. Why it waits is not here: that follows from the pool. */
  readonly reason: string;
  /** Revision of its last change. */
  readonly version: number;
  readonly createdAt: number;
  /** null: never bound. */
  readonly boundAt: number | null;
  /** null: not ended. */
  readonly endedAt: number | null;
  /** When it began to wait, this time; null: it does not. */
  readonly waitingSince: number | null;
  /** When what it holds will be taken; null: that is not planned. */
  readonly preemptAt: number | null;
  /** How often it was put into the queue again. */
  readonly requeues: number;
}

export interface VirtualGpuRecord {
  readonly uuid: string;
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

/** A change of sizes that waits until the sessions of the allocation are known to fit into them. */
export interface ResizingRecord {
  /** What the vGPUs were. */
  readonly from: readonly VirtualGpuRecord[];
  /** What they are to be. */
  readonly to: readonly VirtualGpuRecord[];
  /** What the claim asks then. */
  readonly asked: Pick<ClaimSpec, "memoryBytes" | "memoryPercent" | "computePercent">;
  /** When it is given up. */
  readonly until: number;
}

export interface AllocationRecord {
  readonly claim: string;
  readonly node: string;
  /** Unique among all allocations that ever were. */
  readonly epoch: number;
  readonly grantedAt: number;
  /** Seconds since then in which its sessions made calls, as last written down. */
  readonly activeSeconds: number;
  /** What its agent had counted by then, since the allocation is there, milliseconds. */
  readonly countedMs: number;
  /**
   * Revision at which it was taken back, while its sessions may still use the devices; null: the claim is bound to it.
   */
  readonly releasedRevision: number | null;
  /** Revision of the last change of what its sessions may use; 0: it is as it was granted. */
  readonly sizeRevision: number;
  /** null: its sizes are what they are. */
  readonly resizing: ResizingRecord | null;
  /** What it has in the books: while it is being resized, the greater of both. The order is the client's ordinals. */
  readonly devices: readonly VirtualGpuRecord[];
}

export interface DeviceRecord {
  readonly index: number;
  /** Unique on its node. */
  readonly uuid: string;
  readonly name: string;
  readonly kind: string;
  readonly memoryBytes: bigint;
  readonly pciBusId: string;
  readonly computeCapability: string;
  readonly multiprocessors: number;
  readonly driverVersion: string;
  readonly cudaVersion: number;
  readonly isHealthy: boolean;
  readonly healthReason: string;
  /** Where it sits on its node: equal values are the same place. Empty: not known. */
  readonly numaNode: string;
  readonly pcieSwitch: string;
  readonly nvlinkDomain: string;
  /** Takes no new claims, by will. */
  readonly isCordoned: boolean;
}

export interface NodeRecord {
  readonly name: string;
  readonly agentUrl: string;
  readonly agentVersion: string;
  readonly hostname: string;
  readonly bootId: string;
  readonly isCordoned: boolean;
  /** Why, for people. */
  readonly cordonReason: string;
  /** Those that operators gave it; they win over its agent's. */
  readonly labels: Labels;
  /** Those that its agent brings. */
  readonly agentLabels: Labels;
  /** Revision of the last change of what should be on the node. */
  readonly revision: number;
  readonly joinedAt: number;
  /** In order of their ordinals. */
  readonly devices: readonly DeviceRecord[];
}

export interface EventRecord {
  /** Grows by one with every event. */
  readonly id: number;
  readonly at: number;
  readonly kind: string;
  readonly subject: string;
  readonly message: string;
}

/** A time that is over: how long a claim waited, or held devices. */
export interface UsageRecord {
  readonly kind: "waited" | "held";
  readonly claim: string;
  readonly tenant: string;
  readonly queue: string;
  /** Thousandths of a device, all vGPUs together. */
  readonly gpuMilli: number;
  readonly beganAt: number;
  readonly endedAt: number;
  /** Seconds of it in which sessions made calls. */
  readonly activeSeconds: number;
}

/** A token that was made. */
export interface TokenRecord {
  readonly name: string;
  /** SHA-256 of the secret, hexadecimal. */
  readonly hash: string;
  readonly role: Role;
  /** Whose claims it is about; empty: those of all. */
  readonly tenant: string;
  readonly createdAt: number;
  /** null: never. */
  readonly expiresAt: number | null;
  /** Name of the token that made it. */
  readonly createdBy: string;
  /** Revision at which it was made. */
  readonly revision: number;
}

/** A node that was taken out of the pool. It stays known: what its agent had to join with is no longer good for it. */
export interface RemovedNodeRecord {
  readonly name: string;
  readonly removedAt: number;
  /** Revision at which it was removed: tokens that were made later are good for it. */
  readonly revision: number;
}

/** A call that was to change something. */
export interface AuditEntry {
  readonly at: number;
  /** Name of the token. */
  readonly who: string;
  readonly role: string;
  /** The tenant that the token is for; empty: none. */
  readonly tenant: string;
  /** The method. */
  readonly what: string;
  readonly subject: string;
  readonly why: string;
  /** `ok`, or the code of the refusal. */
  readonly result: string;
}

export interface AuditRecord extends AuditEntry {
  /** Grows with every record. */
  readonly id: number;
}

export interface AuditQuery {
  /** Only records with a greater id, the oldest of them; 0: the newest. */
  readonly after: number;
  /** Only those of tokens for this tenant; empty: all. */
  readonly tenant: string;
  readonly limit: number;
}

/** Everything but the events, the audit and what is over. */
export interface StoredState {
  /** UUID of this state. */
  readonly identity: string;
  /** Ed25519, PKCS #8, DER. */
  readonly ticketKey: Uint8Array;
  readonly revision: number;
  readonly epoch: number;
  /** Id of the last event; 0: none yet. */
  readonly lastEvent: number;
  readonly claims: readonly ClaimRecord[];
  readonly allocations: readonly AllocationRecord[];
  readonly nodes: readonly NodeRecord[];
  /** Also those that have joined again. */
  readonly removedNodes: readonly RemovedNodeRecord[];
  readonly queues: readonly QueueSpec[];
  readonly tenants: readonly TenantSpec[];
  readonly tokens: readonly TokenRecord[];
}

/** One change of the state, all of it or nothing. */
export interface StoreChanges {
  /** The new revision, greater than the last one. */
  readonly revision: number;
  /** The new epoch, not less than the last one. */
  readonly epoch: number;
  /** New and changed ones. */
  readonly nodes: readonly NodeRecord[];
  /** New ones, and those that were removed once more. Their nodes and devices go; they have no allocations. */
  readonly removedNodes: readonly RemovedNodeRecord[];
  /** New and changed ones. */
  readonly claims: readonly ClaimRecord[];
  /** Claims to forget; they have no allocation. */
  readonly forgottenClaims: readonly string[];
  /** New and changed ones; the sizes of an allocation's devices may change, the devices do not. */
  readonly allocations: readonly AllocationRecord[];
  /** Epochs of allocations that are gone. */
  readonly removedAllocations: readonly number[];
  /** New and changed ones. */
  readonly queues: readonly QueueSpec[];
  readonly removedQueues: readonly string[];
  /** New and changed ones. */
  readonly tenants: readonly TenantSpec[];
  readonly removedTenants: readonly string[];
  /** New ones; a token never changes. */
  readonly tokens: readonly TokenRecord[];
  readonly removedTokens: readonly string[];
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
  /** `oldest`: the first so many after `after`; `newest`: the last so many. Ascending by id either way. */
  readonly end: "oldest" | "newest";
}

/** A controller that would lead. */
export interface Candidate {
  /** UUID, of one term: who has ceased to lead comes back as another. */
  readonly id: string;
  /** Base URL at which it can be reached. */
  readonly url: string;
}

/** Who leads: whoever does writes, and nobody else. */
export interface Lead {
  /** Grows whenever somebody begins to lead. 0: nobody ever has. */
  readonly term: number;
  /** Where the one that leads can be reached; empty: nobody leads. */
  readonly url: string;
  /** Whether it is the one who asks. */
  readonly isOurs: boolean;
}

/** Where the state is kept. Several controllers may share it; one of them leads. */
export interface Store {
  /** How long a lead lasts unless it is asked for again; infinite where a store is one controller's for life. */
  readonly leaseMs: number;

  /**
   * Leads, or goes on leading, unless another does.
   *
   * @throws MILLPOND_E_STORE_UNREACHABLE
   */
  campaign(candidate: Candidate): Promise<Lead>;

  /** Ceases to lead, so that another can begin at once. */
  resign(candidate: Candidate): Promise<void>;

  /** Reads everything. */
  load(): Promise<StoredState>;

  /**
   * Reads what was committed after a revision, in order; undefined: more than the store remembers. Audit and usage are
   * left out.
   */
  changesAfter(revision: number): Promise<readonly StoreChanges[] | undefined>;

  /**
   * Makes a change durable: when the promise is fulfilled, it survives any crash; when it is rejected, nothing of it
   * has happened.
   *
   * @param term Of the one who leads.
   * @throws MILLPOND_E_STATE_BROKEN; MILLPOND_E_NOT_LEADER when another has begun to lead, and
   *   MILLPOND_E_STORE_UNREACHABLE when the store is away: then it is not known whether it has happened, and whoever
   *   leads must cease to.
   */
  commit(changes: StoreChanges, term: number): Promise<void>;

  /** Reads events; the store forgets the oldest ones beyond its limit. */
  listEvents(query: EventQuery): Promise<EventRecord[]>;

  /** Reads the audit, ascending by id; the store forgets the oldest records beyond its limit. */
  listAudit(query: AuditQuery): Promise<AuditRecord[]>;

  /** Reads what overlaps a period, oldest end first; the store forgets the oldest beyond its limit. */
  listUsage(period: { readonly from: number; readonly to: number }): Promise<UsageRecord[]>;

  close(): Promise<void>;
}
