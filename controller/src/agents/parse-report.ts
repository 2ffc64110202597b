// SPDX-License-Identifier: Apache-2.0

import {
  type CardFigures,
  checkLabels,
  type DeviceReport,
  DeviceHealth,
  formatBytes,
  isKeyId,
  maxDevicesPerNode,
  maxTicketLength,
  maxMemoryBytes,
  millpondError,
  minMemoryBytes,
  parseName,
  parseNodeName,
  quote,
  type SessionReport,
  SessionState,
  type SyncRequest,
} from "@millpond/api";
import { parseAgentUrl } from "@millpond/platform";
import type { SessionFacts, NodeDescription, AgentReport } from "../domain/agent-report.ts";
import type { DeviceRecord } from "../domain/records.ts";
import { cleanText } from "../domain/validate-claim.ts";

/** The most sessions that an agent reports. */
const maxSessions = 4096;
/** The most ticket keys that an agent reports. */
const maxTicketKeys = 64;

/**
 * Validates an agent's report.
 *
 * @throws MILLPOND_E_INVALID
 */
export function checkReport(request: SyncRequest): AgentReport {
  const node = parseNodeName(request.node);
  if (request.sessions.length > maxSessions) {
    throw invalid(`node ${node} reports ${request.sessions.length} sessions, more than ${maxSessions}`);
  }
  if (request.endedSessions.length > maxSessions) {
    throw invalid(
      `node ${node} reports ${request.endedSessions.length} ended sessions, more than ${maxSessions}`,
    );
  }
  if (request.activity.length > maxSessions) {
    throw invalid(
      `node ${node} reports the activity of ${request.activity.length} allocations, more than ${maxSessions}`,
    );
  }
  if (!/^[\x21-\x7e]{1,80}$/.test(request.run)) {
    throw invalid(
      `node ${node} reports the run ${quote(request.run)}, which is not 1 to 80 printable characters`,
    );
  }
  const sessions = request.sessions.map((session) => checkSession(node, session));
  refuseDoubles(
    node,
    "session",
    sessions.map(({ id }) => id),
  );
  const isDescribed = request.describedBy !== 0n;
  const sequence = checkCounter(request.sequence, "sequence");
  return {
    node,
    run: request.run,
    sequence,
    knownRevision: checkCounter(request.knownRevision, "known revision"),
    knownTerm: checkCounter(request.knownTerm, "known term"),
    warmWorkers: request.warmWorkers,
    ticketKeys: checkKeyIds(node, request.ticketKeyIds),
    describedBy: isDescribed ? checkCounter(request.describedBy, "sequence of the description") : sequence,
    description: isDescribed ? undefined : checkDescription(node, request),
    sessions,
    figures: checkFigures(node, request),
    endedSessions: request.endedSessions.map(({ id, claim, epoch, hadClient }) => ({
      ...checkSessionNames(node, { id, claim, epoch }),
      hadClient,
    })),
    activity: request.activity.map(({ epoch, activeMilliseconds }) => ({
      epoch: checkCounter(epoch, "epoch"),
      countedMs: checkCounter(activeMilliseconds, "activity"),
    })),
    isLeaving: request.leaving,
  };
}

function checkFigures(node: string, { figures }: SyncRequest): ReadonlyMap<string, CardFigures> {
  if (figures.length > maxDevicesPerNode) {
    throw invalid(
      `node ${node} reports figures of ${figures.length} devices, more than ${maxDevicesPerNode}`,
    );
  }
  return new Map(figures.flatMap(({ uuid, card }) => (card === undefined ? [] : [[uuid, card] as const])));
}

function checkKeyIds(node: string, ids: readonly string[]): ReadonlySet<string> {
  if (ids.length > maxTicketKeys) {
    throw invalid(`node ${node} reports ${ids.length} ticket keys, more than ${maxTicketKeys}`);
  }
  if (!ids.every(isKeyId)) {
    throw invalid(`node ${node} reports a ticket key whose id is not 16 hexadecimal digits`);
  }
  return new Set(ids);
}

function checkDescription(node: string, request: SyncRequest): NodeDescription {
  if (request.devices.length > maxDevicesPerNode) {
    throw invalid(`node ${node} reports ${request.devices.length} devices, more than ${maxDevicesPerNode}`);
  }
  const devices = request.devices
    .map((device) => checkDevice(node, device))
    .sort((a, b) => a.index - b.index);
  refuseDoubles(
    node,
    "device UUID",
    devices.map(({ uuid }) => uuid),
  );
  refuseDoubles(
    node,
    "device index",
    devices.map(({ index }) => String(index)),
  );
  return {
    agentUrl: checkUrl(request.agentUrl),
    agentVersion: cleanText(request.agentVersion),
    hostname: cleanText(request.hostname),
    bootId: cleanText(request.bootId),
    labels: checkLabels(request.labels),
    devices,
    faults: new Map(
      request.devices
        .filter(({ fault }) => fault > 0n)
        .map(({ uuid, fault }) => [uuid, checkCounter(fault, "number of a fault")]),
    ),
  };
}

function checkDevice(node: string, device: DeviceReport): DeviceRecord {
  const what = `device ${node}/${device.index}`;
  if (!/^[A-Za-z0-9-]{1,80}$/.test(device.uuid)) {
    throw invalid(
      `${what} has the UUID ${quote(device.uuid)}, which is not 1 to 80 letters, digits and hyphens`,
    );
  }
  if (device.memoryBytes < minMemoryBytes || device.memoryBytes > maxMemoryBytes) {
    throw invalid(
      `${what} has ${formatBytes(device.memoryBytes)} of memory, which is not between 1 MiB and 1 PiB`,
    );
  }
  if (device.overheadBytes > device.memoryBytes / 4n) {
    throw invalid(
      `${what} reports ${formatBytes(device.overheadBytes)} of overhead for each claim, more than a quarter of its memory`,
    );
  }
  if (device.health !== DeviceHealth.HEALTHY && device.health !== DeviceHealth.UNHEALTHY) {
    throw invalid(`${what} has no health`);
  }
  return {
    index: device.index,
    uuid: device.uuid,
    name: cleanText(device.name),
    kind: cleanText(device.kind),
    memoryBytes: device.memoryBytes,
    overheadBytes: device.overheadBytes,
    pciBusId: cleanText(device.pciBusId),
    computeCapability: cleanText(device.computeCapability),
    multiprocessors: device.multiprocessors,
    driverVersion: cleanText(device.driverVersion),
    cudaVersion: device.cudaVersion,
    isHealthy: device.health === DeviceHealth.HEALTHY,
    isCordoned: false,
    cordonReason: "",
    healthReason: cleanText(device.healthReason),
    numaNode: cleanText(device.numaNode),
    pcieSwitch: cleanText(device.pcieSwitch),
    nvlinkDomain: cleanText(device.nvlinkDomain),
  };
}

function checkSessionNames(
  node: string,
  { id, claim, epoch }: Pick<SessionReport, "id" | "claim" | "epoch">,
): Pick<SessionFacts, "id" | "claim" | "epoch"> {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id)) {
    throw invalid(`node ${node} reports the session ${quote(id)}, which is not a UUID`);
  }
  return { id, claim: parseName(claim, "claim name"), epoch: checkCounter(epoch, "epoch") };
}

function checkSession(node: string, session: SessionReport): SessionFacts {
  const state = sessionState(node, session);
  return {
    ...checkSessionNames(node, session),
    state,
    startedAt: checkCounter(session.startedAt, "start of a session"),
    hasClient: state === "connected" || session.transport !== "",
    clientPid: session.clientPid,
    clientHost: cleanText(session.clientHost),
    program: cleanText(session.program),
    transport: cleanText(session.transport),
    memoryUsed: new Map(
      session.devices.slice(0, maxDevicesPerNode).map((use) => [use.uuid, use.memoryUsedBytes]),
    ),
    computeUsed: new Map(
      session.devices
        .slice(0, maxDevicesPerNode)
        .flatMap(({ uuid, computeUsedPercent: used }) =>
          used === undefined ? [] : [[uuid, Math.min(used, 100)]],
        ),
    ),
    limits: new Map(
      session.devices
        .slice(0, maxDevicesPerNode)
        .filter(({ memoryLimitBytes }) => memoryLimitBytes > 0n)
        .map(({ uuid, memoryLimitBytes, computePercent }) => [
          uuid,
          { uuid, memoryBytes: memoryLimitBytes, computePercent },
        ]),
    ),
    sizeRevision: checkCounter(session.sizeRevision, "size revision"),
    sizeRefusal: cleanText(session.sizeRefusal),
    commands: session.commands,
    launches: session.launches,
    waits: session.waits,
    notParked: cleanText(session.notParked),
    // Too long for a UUID.
    ticket: session.ticket.length > maxTicketLength ? "" : session.ticket,
  };
}

function sessionState(node: string, { id, state }: SessionReport): SessionFacts["state"] {
  switch (state) {
    case SessionState.ASSIGNED:
      return "assigned";
    case SessionState.CONNECTED:
      return "connected";
    case SessionState.CLOSING:
      return "closing";
    default:
      throw invalid(`node ${node} reports the session ${id} without its state`);
  }
}

function checkUrl(text: string): string {
  const { baseUrl, fingerprint } = parseAgentUrl(text);
  const { hostname } = new URL(baseUrl);
  if (fingerprint === undefined && !/^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/.test(hostname)) {
    // Clients would be sent to this address with their tickets, whatever listens there.
    throw invalid(
      `the agent URL ${quote(baseUrl)} names another host than the agent's own without the fingerprint of a certificate`,
    );
  }
  return fingerprint === undefined ? baseUrl : `${baseUrl}#sha256=${fingerprint.toLowerCase()}`;
}

function checkCounter(value: bigint, what: string): number {
  if (value < 0n || value > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw invalid(`the ${what} ${value} is out of range`);
  }
  return Number(value);
}

function refuseDoubles(node: string, what: string, values: readonly string[]): void {
  const seen = new Set<string>();
  for (const value of values) {
    if (seen.has(value)) {
      throw invalid(`node ${node} reports the ${what} ${quote(value)} twice`);
    }
    seen.add(value);
  }
}

function invalid(what: string) {
  return millpondError("MILLPOND_E_INVALID", what);
}
