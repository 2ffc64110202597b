// SPDX-License-Identifier: Apache-2.0

// What a decision about the queues is made from, and what comes of it: values, nothing else. Times are Unix seconds.

import type { ClaimRequest } from "../request.ts";
import type { Snapshot } from "../snapshot.ts";
import type { Statement } from "../statement.ts";
import type { QueueSpec, TenantSpec } from "./queue.ts";
import type { Amount } from "./quota.ts";

/** What both waiting and running claims have. */
interface Standing {
  readonly queue: string;
  readonly tenant: string;
  /** Within its queue the greater goes first. */
  readonly priority: number;
  /** May be taken back. Best-effort claims always may. */
  readonly isPreemptible: boolean;
  /** Gets only what all others leave, and is the first to go. */
  readonly isBestEffort: boolean;
  /** Name of its gang; empty: none. */
  readonly gang: string;
}

export interface WaitingClaim extends Standing {
  readonly request: ClaimRequest;
  /** Unique; the smaller came first. */
  readonly arrival: number;
  readonly waitingSince: number;
  /** It ends by itself so many seconds after it was bound; 0: it may not. */
  readonly timeLimitSeconds: number;
  readonly gangSize: number;
  /** All members of the gang on one node. */
  readonly isSameNode: boolean;
  /** Boot id of a machine where it would rather be; empty: none. */
  readonly preferredHost: string;
}

export interface RunningClaim extends Standing {
  /** What it holds. */
  readonly statement: Statement;
  readonly boundAt: number;
  /** When it ends or is taken back at the latest; null: that is not known. */
  readonly endsAt: number | null;
  /** It has had notice already. */
  readonly isEnding: boolean;
  /** Notice that it gets. */
  readonly graceSeconds: number;
}

/** What was taken back and may still be in use, for a moment or until a lost node is back. */
export interface Leftover {
  /** As in the grants of the devices. */
  readonly statement: Statement;
  /** Null: its node is lost, nobody knows. */
  readonly endsAt: number | null;
}

/** Those who hold something of one node. The same value for as long as nothing of them changes. */
export interface Holdings {
  readonly running: readonly RunningClaim[];
  readonly leftovers: readonly Leftover[];
}

/** Sums over the running claims. */
export interface RunningTotals {
  /** What they hold, by the queue in which they waited. */
  readonly queues: ReadonlyMap<string, Amount>;
  /** Of it what is held by claims that may not be taken back. */
  readonly firm: ReadonlyMap<string, Amount>;
  readonly tenants: ReadonlyMap<string, Amount>;
  /** Their number, by gang. */
  readonly gangs: ReadonlyMap<string, number>;
}

export interface QueueSnapshot {
  readonly now: number;
  readonly pool: Snapshot;
  /** Every queue that a claim names is there, and every parent. */
  readonly queues: readonly QueueSpec[];
  /** A tenant that is not there has no limit. */
  readonly tenants: readonly TenantSpec[];
  readonly waiting: readonly WaitingClaim[];
  readonly running: readonly RunningClaim[];
  /** Sums over `running`, where they are known. Absent: they are made. */
  readonly totals?: RunningTotals;
  readonly leftovers: readonly Leftover[];
  /** `running` and `leftovers` by their node, where that is known. Absent: they are grouped. */
  readonly holdings?: (node: string) => Holdings;
}

/** The bounds of the search for decisions. */
export interface PlanSettings {
  /** The first claim of a queue that has waited so long gets a reservation: nobody overtakes it any more. */
  readonly reserveAfterSeconds: number;
  /** A claim that has waited so long goes before those of its queue with a greater priority. */
  readonly ageAfterSeconds: number;
  readonly maxReservations: number;
  /** The most claims that are taken back for one claim or gang. */
  readonly maxVictims: number;
  /**
   * The most claims that are looked at as victims for a gang; for a claim, the most nodes, and the most claims on each.
   */
  readonly maxCandidates: number;
}

export const defaultPlanSettings: PlanSettings = {
  reserveAfterSeconds: 60,
  ageAfterSeconds: 1800,
  maxReservations: 8,
  maxVictims: 16,
  maxCandidates: 64,
};

/** A claim that is to be taken back. */
export interface Preemption {
  readonly claim: string;
  /** The claim or gang that gets what it held. */
  readonly beneficiary: string;
  /** One sentence for people. */
  readonly reason: string;
}

/** Why a claim waits. */
export type Obstacle = "gang" | "quota" | "reserved" | "preempting" | "room";

export interface Blocked {
  readonly obstacle: Obstacle;
  /** One sentence for people, without a full stop. */
  readonly reason: string;
  /** When room is expected for it at the latest; null: that is not known. */
  readonly expectedAt: number | null;
}

export interface QueueDecision {
  /** In the order in which they were made: each was made with the ones before it carried out. */
  readonly grants: readonly Statement[];
  readonly preemptions: readonly Preemption[];
  /** Every waiting claim that is not granted. */
  readonly blocked: ReadonlyMap<string, Blocked>;
  /** The waiting claims in the order in which they were looked at. */
  readonly order: readonly string[];
}
