// SPDX-License-Identifier: Apache-2.0

// The records that the controller persists. Records are values: a change makes a new one. Times are Unix seconds, sizes are
// bytes.

import type { Reason } from "@millpond/api";
import type { Labels } from "@millpond/scheduler";
import type { StoredRole } from "./caller.ts";
import type { ClaimSpec } from "./claim-spec.ts";

export type ClaimRecordState = "dormant" | "pending" | "bound" | "released" | "failed";

export interface ClaimRecord extends ClaimSpec {
  /** Revision at which it was created, or requested again: the order of arrival. */
  readonly arrival: number;
  readonly state: ClaimRecordState;
  /**
   * How it ended, why it is dormant, or why it will be preempted; undefined: there is none. Why it waits is not recorded,
   * because that follows from the pool.
   */
  readonly reason: Reason | undefined;
  /** Revision of its last change. */
  readonly version: number;
  readonly createdAt: number;
  /** null: never bound. */
  readonly boundAt: number | null;
  /** null: not ended. */
  readonly endedAt: number | null;
  /** When it last began to wait; null: it does not wait. */
  readonly waitingSince: number | null;
  /** When it will be preempted; null: not planned. */
  readonly preemptAt: number | null;
  /** How often it returned to the queue. */
  readonly requeues: number;
}

/** Whether the claim has not ended. */
export function isLive(claim: ClaimRecord): boolean {
  return claim.endedAt === null;
}

export interface VirtualGpuRecord {
  readonly uuid: string;
  readonly memoryBytes: bigint;
  readonly computePercent: number;
}

/** A resize that is pending until the sessions of the allocation are known to fit. */
export interface ResizingRecord {
  /** The sizes before. */
  readonly from: readonly VirtualGpuRecord[];
  /** The requested sizes. */
  readonly to: readonly VirtualGpuRecord[];
  /** The claim's request after the resize. */
  readonly asked: Pick<ClaimSpec, "memoryBytes" | "memoryPercent" | "computePercent">;
  /** When it is abandoned. */
  readonly until: number;
}

export interface AllocationRecord {
  readonly claim: string;
  readonly node: string;
  /** Unique among all allocations ever made. */
  readonly epoch: number;
  readonly grantedAt: number;
  /** Seconds since then in which its sessions made calls, as last stored. */
  readonly activeSeconds: number;
  /** Milliseconds that its agent had counted by then, since the start of the allocation. */
  readonly countedMs: number;
  /** Revision at which it was released, while its sessions may still use the devices; null: the claim is bound to it. */
  readonly releasedRevision: number | null;
  /** Revision of the last resize; 0: never resized. */
  readonly sizeRevision: number;
  /** null: no resize is pending. */
  readonly resizing: ResizingRecord | null;
  /** Accounted sizes: during a resize, the larger of both. The order is the client's ordinals. */
  readonly devices: readonly VirtualGpuRecord[];
}

export interface DeviceRecord {
  readonly index: number;
  /** Unique on its node. */
  readonly uuid: string;
  readonly name: string;
  readonly kind: string;
  readonly memoryBytes: bigint;
  /** Memory that the driver takes for a session of a claim, beside the claim's own. 0: none, or not reported. */
  readonly overheadBytes: bigint;
  readonly pciBusId: string;
  readonly computeCapability: string;
  readonly multiprocessors: number;
  readonly driverVersion: string;
  readonly cudaVersion: number;
  readonly isHealthy: boolean;
  readonly healthReason: string;
  /** Where it is attached on its node: equal values are the same place. Empty: unknown. */
  readonly numaNode: string;
  readonly pcieSwitch: string;
  readonly nvlinkDomain: string;
  /** Takes no new claims, because an administrator cordoned it. */
  readonly isCordoned: boolean;
  /** Why, for display. */
  readonly cordonReason: string;
}

export interface NodeRecord {
  readonly name: string;
  readonly agentUrl: string;
  readonly agentVersion: string;
  readonly hostname: string;
  readonly bootId: string;
  readonly isCordoned: boolean;
  /** Why, for display. */
  readonly cordonReason: string;
  /** Labels set by operators; they take precedence over those of the agent. */
  readonly labels: Labels;
  /** Labels reported by its agent. */
  readonly agentLabels: Labels;
  /** Revision of the last change of the node's desired allocations. */
  readonly revision: number;
  readonly joinedAt: number;
  /** In order of their ordinals. */
  readonly devices: readonly DeviceRecord[];
}

export interface EventRecord {
  /** Increases by one with every event. */
  readonly id: number;
  readonly at: number;
  readonly kind: string;
  readonly subject: string;
  readonly detail: Reason;
}

/** A past interval in which a claim waited, or held devices. */
export interface UsageRecord {
  readonly kind: "waited" | "held";
  readonly claim: string;
  readonly tenant: string;
  readonly queue: string;
  /** The user that the claim is charged to; empty: unknown. */
  readonly user: string;
  /** Model of the devices; empty while it waited, and unknown of what an earlier release recorded. */
  readonly model: string;
  /** Thousandths of a device, all vGPUs of the model together. */
  readonly gpuMilli: number;
  readonly beganAt: number;
  readonly endedAt: number;
  /** Seconds of it in which sessions made calls. */
  readonly activeSeconds: number;
}

/** A token that was created through the API. */
export interface TokenRecord {
  readonly name: string;
  /** SHA-256 of the secret, hexadecimal. */
  readonly hash: string;
  readonly role: StoredRole;
  /** Tenant whose claims it may access; empty: all tenants. */
  readonly tenant: string;
  /** For an agent: the only node that it may report; empty until a node has joined with it. */
  readonly node: string;
  readonly createdAt: number;
  /** null: never. */
  readonly expiresAt: number | null;
  /** Name of the token that created it. */
  readonly createdBy: string;
  /** Revision at which it was created. */
  readonly revision: number;
}

/** Where a login is kept: in the cookie of a browser, or in the context of a command line. */
export type LoginKind = "console" | "command-line";

/** A login by a browser or a command line, which can be ended without its token. */
export interface LoginRecord {
  /** 16 hexadecimal digits, in the cookie or the token of the login. */
  readonly id: string;
  /** Name of the token, or of the user whom an OpenID provider has named. */
  readonly who: string;
  /** The tenant of the token; empty: all tenants. */
  readonly tenant: string;
  readonly kind: LoginKind;
  readonly createdAt: number;
  readonly expiresAt: number;
  /** It was ended. Such records stay for a while: controllers accept a login for as long as its record may be under way. */
  readonly isRevoked: boolean;
}

/** A key that signs tickets. */
export interface SigningKeyRecord {
  /** See `ticketKeyId`. */
  readonly id: string;
  /** As `parseTicketPublicKey` reads it. */
  readonly publicKey: string;
  /** The private half, PKCS #8, DER, sealed with the pool key, base64; empty: nothing is derived from it any longer. */
  readonly sealed: string;
  readonly createdAt: number;
  /** Time after which tickets signed with it are refused; null: it is the current one. */
  readonly retiresAt: number | null;
  /** Nothing that it signed, or that is derived from it, is accepted. */
  readonly isRevoked: boolean;
  /** Revision at which it was created; 0: with the state. */
  readonly revision: number;
}

/**
 * A node that was removed from the pool. It stays recorded, because its agent's earlier tokens are no longer valid for it.
 */
export interface RemovedNodeRecord {
  readonly name: string;
  readonly removedAt: number;
  /** Revision at which it was removed: tokens created later are valid for it. */
  readonly revision: number;
}

/** A call that asked for a change. */
export interface AuditEntry {
  readonly at: number;
  /** Name of the token. */
  readonly who: string;
  readonly role: string;
  /** The tenant of the token; empty: none. */
  readonly tenant: string;
  /** The method. */
  readonly what: string;
  readonly subject: string;
  readonly why: string;
  /** `ok`, or the error code. */
  readonly result: string;
}

export interface AuditRecord extends AuditEntry {
  /** Increases with every record. */
  readonly id: number;
  /** Hash of the record before it; empty: it is the first, or was written before records were chained. */
  readonly previousHash: string;
  /** Covers this record and the hash before it; empty: it was written before records were chained. */
  readonly hash: string;
}
