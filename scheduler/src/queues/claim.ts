// SPDX-License-Identifier: Apache-2.0

// Inputs and results of a decision about the queues: plain values. Times are Unix seconds.

import type { Reason } from "@millpond/api";
import type { ClaimRequest } from "../request.ts";
import type { Snapshot } from "../snapshot.ts";
import type { Statement } from "../statement.ts";
import type { QueueSpec, TenantSpec } from "./queue.ts";
import type { Amount } from "./quota.ts";

/** Fields that waiting and running claims share. */
interface Standing {
  readonly queue: string;
  readonly tenant: string;
  /** The user of the tenant to whom it is charged; empty: unknown, and charged to none. */
  readonly user: string;
  /** Priority within the queue; higher is scheduled first. */
  readonly priority: number;
  /** May be preempted. Best-effort claims always may be. */
  readonly isPreemptible: boolean;
  /** Gets only what all others leave, and is preempted first. */
  readonly isBestEffort: boolean;
  /** Name of its gang; empty: none. */
  readonly gang: string;
}

export interface WaitingClaim extends Standing {
  readonly request: ClaimRequest;
  /** Unique; smaller is earlier. */
  readonly arrival: number;
  readonly waitingSince: number;
  /** Seconds after binding at which it ends; 0: no limit. */
  readonly timeLimitSeconds: number;
  readonly gangSize: number;
  /** All members of the gang must be on one node. */
  readonly isSameNode: boolean;
  /** Boot id of the host that it prefers; empty: none. */
  readonly preferredHost: string;
}

export interface RunningClaim extends Standing {
  /** What it holds. */
  readonly statement: Statement;
  readonly boundAt: number;
  /** Latest time at which it ends or is preempted; null: unknown. */
  readonly endsAt: number | null;
  /** It has already been given notice. */
  readonly isEnding: boolean;
  /** Length of its notice period. */
  readonly graceSeconds: number;
}

/** A preempted allocation that may still be in use: briefly, or until a lost node returns. */
export interface Leftover {
  /** The name in the grants of the devices. */
  readonly statement: Statement;
  /** null: its node is lost, and the time is unknown. */
  readonly endsAt: number | null;
}

/** The claims and released allocations that hold devices of one node. The same object for as long as none of them changes. */
export interface Holdings {
  readonly running: readonly RunningClaim[];
  readonly leftovers: readonly Leftover[];
}

/** Sums over the running claims. */
export interface RunningTotals {
  /** What they hold, by the queue in which they waited. */
  readonly queues: ReadonlyMap<string, Amount>;
  /** The part of it that belongs to claims that may not be preempted. */
  readonly firm: ReadonlyMap<string, Amount>;
  readonly tenants: ReadonlyMap<string, Amount>;
  /** By `userKey`. */
  readonly users: ReadonlyMap<string, Amount>;
  /** Their number, by gang. */
  readonly gangs: ReadonlyMap<string, number>;
}

export interface QueueSnapshot {
  readonly now: number;
  readonly pool: Snapshot;
  /** Contains every queue that a claim names, and every parent. */
  readonly queues: readonly QueueSpec[];
  /** A tenant that is missing here has no limit. */
  readonly tenants: readonly TenantSpec[];
  readonly waiting: readonly WaitingClaim[];
  readonly running: readonly RunningClaim[];
  /** Sums over `running`. Absent: they are computed. */
  readonly totals?: RunningTotals;
  readonly leftovers: readonly Leftover[];
  /** `running` and `leftovers` by their node. Absent: they are grouped. */
  readonly holdings?: (node: string) => Holdings;
}

/** Limits of the search. */
export interface PlanSettings {
  /** The first claim of a queue gets a reservation after this wait: from then on no claim overtakes it. */
  readonly reserveAfterSeconds: number;
  /** After this wait a claim goes before those of its queue with a higher priority. */
  readonly ageAfterSeconds: number;
  readonly maxReservations: number;
  /** The most claims that are preempted for one claim or gang. */
  readonly maxVictims: number;
  /** The most claims considered as victims for a gang; for a single claim, the most nodes, and the most claims on each. */
  readonly maxCandidates: number;
}

export const defaultPlanSettings: PlanSettings = {
  reserveAfterSeconds: 60,
  ageAfterSeconds: 1800,
  maxReservations: 8,
  maxVictims: 16,
  maxCandidates: 64,
};

/** A claim to be preempted. */
export interface Preemption {
  readonly claim: string;
  /** The claim or gang for which the capacity is freed. */
  readonly beneficiary: string;
  readonly reason: Reason;
}

/** Why a claim waits. */
export type Obstacle = "gang" | "quota" | "reserved" | "preempting" | "room";

export interface Blocked {
  readonly obstacle: Obstacle;
  readonly reason: Reason;
  /** Latest time at which room is expected for it; null: unknown. */
  readonly expectedAt: number | null;
}

export interface QueueDecision {
  /** In the order in which they were made; each assumes that those before it are carried out. */
  readonly grants: readonly Statement[];
  readonly preemptions: readonly Preemption[];
  /** Every waiting claim that is not granted. */
  readonly blocked: ReadonlyMap<string, Blocked>;
  /** The waiting claims in the order in which they were considered. */
  readonly order: readonly string[];
}
