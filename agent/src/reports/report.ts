// SPDX-License-Identifier: Apache-2.0

import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  DeviceHealth,
  type DeviceReportSchema,
  type EndedSessionSchema,
  type SessionReportSchema,
  SessionState,
} from "@millpond/api";
import type { DiscoveredDevice } from "../devices/devices.ts";
import type { EndedSession, SessionRecord } from "../run-directory/run-directory.ts";
import type { Worker, WorkerPhase } from "../workers/worker.ts";
import type { CardFigures } from "../workers/worker-process.ts";

/**
 * Returns the report on a device. `illness` says why the device must not be used; undefined: it may be used. `fault` is
 * the number of the fault that its driver has reported; 0: none. `overheadBytes`: see `costsOf`.
 */
export function reportDevice(
  device: DiscoveredDevice,
  {
    illness,
    fault,
    overheadBytes,
  }: {
    readonly illness: string | undefined;
    readonly fault: number;
    readonly overheadBytes: number;
  },
): MessageInitShape<typeof DeviceReportSchema> {
  const { description } = device;
  return {
    index: device.index,
    uuid: description.uuid,
    name: description.name,
    kind: description.kind,
    memoryBytes: BigInt(description.memoryBytes),
    overheadBytes: BigInt(overheadBytes),
    pciBusId: description.pciBusId,
    computeCapability: description.computeCapability,
    multiprocessors: description.multiprocessors,
    driverVersion: device.driverVersion,
    cudaVersion: device.cudaVersion,
    health: illness === undefined ? DeviceHealth.HEALTHY : DeviceHealth.UNHEALTHY,
    healthReason: illness ?? "",
    fault: BigInt(fault),
    ...device.topology,
  };
}

/**
 * Returns the fraction of time, 0 to 1, for which a device has recently worked for a session; undefined: not known. A
 * session that has the device for itself is not measured: the utilisation that NVML reports is entirely its own.
 */
export function deviceRate(
  { compute }: Pick<Worker, "compute">,
  uuid: string,
  card: CardFigures | undefined,
): number | undefined {
  const measured = compute.rateOf(uuid, performance.now());
  if (measured !== "alone") return measured;
  return card?.utilizationPercent === undefined ? undefined : card.utilizationPercent / 100;
}

/** Returns the report on a session. */
export function reportSession(
  worker: Worker & { readonly session: SessionRecord },
  {
    figuresOf,
    isInFull,
  }: {
    readonly figuresOf: (uuid: string) => CardFigures | undefined;
    /** Whether the report includes the members that never change. */
    readonly isInFull: boolean;
  },
): MessageInitShape<typeof SessionReportSchema> {
  const { session, client, figures, sizeAnswer } = worker;
  return {
    id: session.session,
    claim: session.claim,
    epoch: BigInt(session.epoch),
    state: sessionState(worker.phase, client !== null),
    startedAt: BigInt(session.startedAt),
    clientPid: client?.clientPid ?? 0,
    clientHost: "",
    program: client?.program ?? "",
    transport: client?.transport ?? "",
    devices: session.devices.map((device) => {
      const rate = client === null ? 0 : deviceRate(worker, device.uuid, figuresOf(device.uuid));
      return {
        uuid: device.uuid,
        memoryUsedBytes: BigInt(figures.memoryUsedBytes.get(device.uuid) ?? 0),
        memoryLimitBytes: BigInt(device.memoryBytes),
        computePercent: device.computePercent,
        ...(rate !== undefined && { computeUsedPercent: Math.round(rate * 100) }),
      };
    }),
    sizeRevision: BigInt(sizeAnswer?.revision ?? 0),
    sizeRefusal: sizeAnswer?.refusal ?? "",
    commands: BigInt(figures.commands),
    launches: BigInt(figures.launches),
    waits: BigInt(figures.waits),
    notParked: figures.notParked,
    ticket: isInFull ? session.ticket : "",
  };
}

/** Returns the report on a session that has ended. */
export function reportEndedSession(ended: EndedSession): MessageInitShape<typeof EndedSessionSchema> {
  const { session, claim, epoch, hadClient } = ended;
  return { id: session, claim, epoch: BigInt(epoch), hadClient };
}

function sessionState(phase: WorkerPhase, hasClient: boolean): SessionState {
  switch (phase) {
    case "connected":
      return SessionState.CONNECTED;
    case "closing":
    case "ended":
      return SessionState.CLOSING;
    case "assigning":
    case "assigned":
      return SessionState.ASSIGNED;
    case "starting": // The agent has taken the worker over and has received no hello yet.
    case "warm":
      return hasClient ? SessionState.CONNECTED : SessionState.ASSIGNED;
  }
}
