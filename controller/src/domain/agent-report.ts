// SPDX-License-Identifier: Apache-2.0

// Validated reports of agents.

import type { CardFigures } from "@millpond/api";
import type { Labels } from "@millpond/scheduler";
import type { DeviceRecord, VirtualGpuRecord } from "./records.ts";

/** A validated report about a session. */
export interface SessionFacts {
  readonly id: string;
  readonly claim: string;
  readonly epoch: number;
  readonly state: "assigned" | "connected" | "closing";
  /** Unix seconds. */
  readonly startedAt: number;
  /** Whether its client has connected. */
  readonly hasClient: boolean;
  readonly clientPid: number;
  readonly clientHost: string;
  readonly program: string;
  readonly transport: string;
  /** Bytes by device UUID. */
  readonly memoryUsed: ReadonlyMap<string, bigint>;
  /** Device time used by it lately, in percent of that time, by UUID; only where known. */
  readonly computeUsed: ReadonlyMap<string, number>;
  /** Limits that its worker enforces, by device UUID; absent where its agent reports none. */
  readonly limits: ReadonlyMap<string, VirtualGpuRecord>;
  /** Revision of the last resize that its worker has answered; 0: none. */
  readonly sizeRevision: number;
  /** Why the worker refused that resize; empty: it did not. */
  readonly sizeRefusal: string;
  readonly commands: bigint;
  readonly launches: bigint;
  readonly waits: bigint;
  /** Why it is not parked although it is idle; empty: it is not idle, or parking does not apply. */
  readonly notParked: string;
  /** The ticket that opened it; empty: not reported. */
  readonly ticket: string;
}

/** A validated report about a session that has ended. */
export interface EndedSessionFacts {
  readonly id: string;
  readonly claim: string;
  readonly epoch: number;
  /** Whether its client ever connected. */
  readonly hadClient: boolean;
}

/** Active time of an allocation's sessions, as counted by its agent. */
export interface ActivityFacts {
  readonly epoch: number;
  readonly countedMs: number;
}

/** The parts of a node's report that hardly ever change, validated. */
export interface NodeDescription {
  readonly agentUrl: string;
  readonly agentVersion: string;
  readonly hostname: string;
  readonly bootId: string;
  readonly labels: Labels;
  /** In order of their ordinals. */
  readonly devices: readonly DeviceRecord[];
  /** Number of the fault that the driver has reported, by UUID; only for devices with one. */
  readonly faults: ReadonlyMap<string, number>;
}

/** A validated report about a node. */
export interface AgentReport {
  readonly node: string;
  readonly run: string;
  readonly sequence: number;
  readonly knownRevision: number;
  /** The highest term that the agent has seen. */
  readonly knownTerm: number;
  readonly warmWorkers: number;
  /** Ids of the ticket keys that the agent has; empty: it has had no answer yet, or is of an earlier release. */
  readonly ticketKeys: ReadonlySet<string>;
  /** Sequence of the call that described the node: this one, or an earlier one; 0: this one, which has no sequence. */
  readonly describedBy: number;
  /** Undefined: as in an earlier call. */
  readonly description: NodeDescription | undefined;
  readonly sessions: readonly SessionFacts[];
  /** Temperature, power and clocks of devices, by UUID, as far as their driver reports them. */
  readonly figures: ReadonlyMap<string, CardFigures>;
  /** Ended sessions that the controller has not acknowledged to the agent. */
  readonly endedSessions: readonly EndedSessionFacts[];
  readonly activity: readonly ActivityFacts[];
  /** It is shutting down gracefully. */
  readonly isLeaving: boolean;
}
