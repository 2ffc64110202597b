// SPDX-License-Identifier: Apache-2.0

import type { Logger } from "pino";
import type { RunDirectory, SessionRecord } from "../run-directory/run-directory.ts";
import type { DriverCosts } from "./driver-probe.ts";
import type { ClaimCgroups } from "./claim-cgroups.ts";
import type { WantedSizes } from "./session-assignment.ts";
import type { WorkerOptions } from "./worker.ts";
import type { WorkerContainment } from "./worker-containment.ts";
import type { PortRange } from "./worker-ports.ts";

/** A device for which workers are kept warm. */
export interface PooledDevice {
  readonly uuid: string;
  /** Driver library that its workers load. */
  readonly driver: string;
  /** See `costsOf`. */
  readonly costs: DriverCosts;
}

export interface WorkerPoolOptions {
  readonly run: RunDirectory;
  readonly worker: string;
  readonly devices: readonly PooledDevice[];
  /** Whether a device must not be used: no workers are kept for it. */
  readonly isIll: (uuid: string) => boolean;
  /** The number of idle workers to keep for each device, if it has room for their contexts. */
  readonly warm: number;
  /** Returns how many workers with contexts a device has room for, beside the workers of these sessions. */
  readonly roomForWorkers: (uuid: string, sessions: readonly SessionRecord[]) => number;
  readonly tcpHost: string;
  /** TCP ports of the workers; undefined: any free ones. */
  readonly tcpPorts: PortRange | undefined;
  readonly orphanSeconds: number;
  /** How long a worker may take from its start to its first message. */
  readonly startTimeoutMs: number;
  /** How long a worker may take to answer an assignment. */
  readonly assignTimeoutMs: number;
  /** How long an assigned worker waits for its client, if the ticket does not expire before. */
  readonly connectWithinSeconds: number;
  /** Longest time, in seconds, that a session waits for a client whose TCP connection was lost. */
  readonly reconnectGraceSeconds: number;
  /** How long a worker may take to obey `close`, and then SIGTERM, before it is killed. */
  readonly closeTimeoutMs: number;
  readonly restartFirstMs: number;
  readonly restartCeilingMs: number;
  readonly containment: WorkerContainment;
  readonly cgroups: ClaimCgroups;
  /** Most host memory, in bytes, that the workers of an allocation may have together. */
  readonly claimHostBytes: number;
  readonly log: Logger;
  /** Called when a session begins, changes its state or ends, and when the number of warm workers changes. */
  readonly onChange: () => void;
  /** See WorkerOptions. */
  readonly onCalls: WorkerOptions["onCalls"];
}

export interface OpenOptions {
  /** Unix seconds; after it the worker accepts no client, and it may give up earlier. */
  readonly expires: number;
  /** See SessionAssignment. */
  readonly linkSecret: string;
  /** See SessionAssignment. */
  readonly parkAfterMs: number;
  /** See SessionAssignment. */
  readonly priority: number;
  /** Name of the claim's tenant. */
  readonly tenant: string;
  /** Called at the moment of assignment, which may come long after the ticket was checked. */
  readonly assertAllowed: () => void;
  /** Returns the sizes that the session has at that moment. */
  readonly sizes: () => WantedSizes;
}
