// SPDX-License-Identifier: Apache-2.0

/**
 * The JSON of `-o json`: a contract. Members are only ever added. Sizes are numbers of bytes, times are RFC 3339 texts or
 * null, states are the words below, and every member is always present.
 */

import {
  type ReasonMessage,
  type AuditRecord,
  type Bounds,
  borrowingWord,
  type Claim,
  claimChoiceWord,
  ClaimState,
  type Device,
  DeviceHealth,
  type Event,
  type ExplainClaimResponse,
  formatTime,
  type Login,
  type Node,
  NodeState,
  type Queue,
  type Session,
  SessionState,
  type Tenant,
  type Token,
} from "@millpond/api";

const apiVersion = "millpond.v1";

/** The words for states and health, in JSON and in tables. A newer controller may have others. */
export function nodeStateWord(state: NodeState): string {
  if (state === NodeState.READY) return "ready";
  return state === NodeState.NOT_READY ? "notReady" : "unknown";
}

export function claimStateWord(state: ClaimState): string {
  switch (state) {
    case ClaimState.DORMANT:
      return "dormant";
    case ClaimState.PENDING:
      return "pending";
    case ClaimState.BOUND:
      return "bound";
    case ClaimState.RELEASED:
      return "released";
    case ClaimState.FAILED:
      return "failed";
    default:
      return "unknown";
  }
}

export function sessionStateWord(state: SessionState): string {
  switch (state) {
    case SessionState.ASSIGNED:
      return "assigned";
    case SessionState.CONNECTED:
      return "connected";
    case SessionState.CLOSING:
      return "closing";
    default:
      return "unknown";
  }
}

export function healthWord(health: DeviceHealth): string {
  if (health === DeviceHealth.HEALTHY) return "healthy";
  return health === DeviceHealth.UNHEALTHY ? "unhealthy" : "unknown";
}

export function time(seconds: bigint): string | null {
  return seconds === 0n ? null : formatTime(seconds);
}

export function deviceToJson(device: Device) {
  return {
    node: device.node,
    index: device.index,
    uuid: device.uuid,
    name: device.name,
    kind: device.kind,
    memoryBytes: Number(device.memoryBytes),
    overheadBytes: Number(device.overheadBytes),
    pciBusId: device.pciBusId,
    numaNode: device.numaNode,
    pcieSwitch: device.pcieSwitch,
    nvlinkDomain: device.nvlinkDomain,
    computeCapability: device.computeCapability,
    multiprocessors: device.multiprocessors,
    driverVersion: device.driverVersion,
    cudaVersion: device.cudaVersion,
    cordoned: device.cordoned,
    cordonReason: device.cordonReason,
    health: healthWord(device.health),
    healthReason: device.healthReason,
    allocatedMemoryBytes: Number(device.allocatedMemoryBytes),
    allocatedComputePercent: device.allocatedComputePercent,
    virtualGpus: device.virtualGpus,
    usedMemoryBytes: Number(device.usedMemoryBytes),
    usedComputePercent: device.usedComputePercent ?? null,
    openSessions: device.openSessions,
    card: cardToJson(device.card),
  };
}

/** Each measurement is null if the driver does not report it; all are null while the node is not in contact. */
function cardToJson(card: Device["card"]) {
  return {
    temperatureCelsius: card?.temperatureCelsius ?? null,
    powerMilliwatts: card?.powerMilliwatts ?? null,
    powerLimitMilliwatts: card?.powerLimitMilliwatts ?? null,
    graphicsClockMhz: card?.graphicsClockMhz ?? null,
    smClockMhz: card?.smClockMhz ?? null,
    memoryClockMhz: card?.memoryClockMhz ?? null,
    utilizationPercent: card?.utilizationPercent ?? null,
    memoryUtilizationPercent: card?.memoryUtilizationPercent ?? null,
    performanceState: card?.performanceState ?? null,
    eccCorrectedErrors: card?.eccCorrectedErrors ?? null,
    eccUncorrectedErrors: card?.eccUncorrectedErrors ?? null,
    remappedRows: card?.remappedRows ?? null,
    pendingRowRemaps: card?.pendingRowRemaps ?? null,
    xids: card?.xids ?? null,
    lastXid: card?.lastXid ?? null,
  };
}

export function nodeToJson(node: Node) {
  return {
    name: node.name,
    state: nodeStateWord(node.state),
    reason: node.reason,
    cordoned: node.cordoned,
    cordonReason: node.cordonReason,
    labels: node.labels,
    agentUrl: node.agentUrl,
    agentVersion: node.agentVersion,
    hostname: node.hostname,
    bootId: node.bootId,
    warmWorkers: node.warmWorkers,
    joinedAt: time(node.joinedAt),
    lastContactAt: time(node.lastContactAt),
    devices: node.devices.map(deviceToJson),
  };
}

export function claimToJson(claim: Claim) {
  const { allocation } = claim;
  return {
    name: claim.name,
    state: claimStateWord(claim.state),
    reason: claim.reason,
    why: reasonToJson(claim.why),
    gpus: claim.gpus,
    memoryBytes: Number(claim.memoryBytes),
    memoryPercent: claim.memoryPercent,
    computePercent: claim.computePercent,
    lazy: claim.lazy,
    lazyIdleSeconds: claim.lazyIdleSeconds,
    exclusive: claim.exclusive,
    models: claim.models,
    minComputeCapability: claim.minComputeCapability,
    pool: claim.pool,
    tenant: claim.tenant,
    user: claim.user,
    queue: claim.queue,
    priority: claim.priority,
    preemptible: claim.preemptible,
    gang: claim.gang,
    gangSize: claim.gangSize,
    gangRank: claim.gangRank,
    placement: claimChoiceWord("placement", claim.placement),
    locality: claimChoiceWord("locality", claim.locality),
    sameNode: claim.sameNode,
    labels: claim.labels,
    nodeLabels: claim.nodeLabels,
    onlyNode: claim.onlyNode,
    onlyDevices: claim.onlyDevices,
    affinity: claim.affinity,
    antiAffinity: claim.antiAffinity,
    timeLimitSeconds: claim.timeLimitSeconds,
    idleLimitSeconds: claim.idleLimitSeconds,
    serviceClass: claimChoiceWord("serviceClass", claim.serviceClass),
    nodeLoss: claimChoiceWord("nodeLoss", claim.nodeLoss),
    clientHost: claim.clientHost,
    graceSeconds: claim.graceSeconds,
    owner: claim.owner,
    leaseSeconds: claim.leaseSeconds,
    sessionBound: claim.sessionBound,
    version: Number(claim.version),
    queuePosition: claim.queuePosition,
    openSessions: claim.openSessions,
    allocation:
      allocation === undefined
        ? null
        : {
            node: allocation.node,
            epoch: Number(allocation.epoch),
            devices: allocation.devices.map((device) => ({
              uuid: device.uuid,
              memoryBytes: Number(device.memoryBytes),
              computePercent: device.computePercent,
            })),
          },
    createdAt: time(claim.createdAt),
    boundAt: time(claim.boundAt),
    endedAt: time(claim.endedAt),
    leaseExpiresAt: time(claim.leaseExpiresAt),
    preemptAt: time(claim.preemptAt),
    requeues: claim.requeues,
    waitingSince: time(claim.waitingSince),
  };
}

function quotaToJson(quota: Bounds | undefined) {
  const number = (value: bigint | undefined) => (value === undefined ? null : Number(value));
  return {
    gpuMilli: number(quota?.gpuMilli),
    computePercent: number(quota?.computePercent),
    memoryBytes: number(quota?.memoryBytes),
  };
}

export function queueToJson(queue: Queue) {
  return {
    name: queue.name,
    parent: queue.parent,
    weight: queue.weight,
    borrowing: borrowingWord(queue.borrowing),
    guaranteed: quotaToJson(queue.guaranteed),
    limit: quotaToJson(queue.limit),
    used: quotaToJson(queue.used),
    waitingClaims: queue.waitingClaims,
    boundClaims: queue.boundClaims,
  };
}

export function tenantToJson(tenant: Tenant) {
  return {
    name: tenant.name,
    limit: quotaToJson(tenant.limit),
    userLimit: quotaToJson(tenant.userLimits?.each),
    used: quotaToJson(tenant.used),
    waitingClaims: tenant.waitingClaims,
    boundClaims: tenant.boundClaims,
    users: tenant.users.map((user) => ({
      user: user.user,
      limit: quotaToJson(user.limit),
      used: quotaToJson(user.used),
      waitingClaims: user.waitingClaims,
      boundClaims: user.boundClaims,
    })),
  };
}

export function sessionToJson(session: Session) {
  return {
    id: session.id,
    claim: session.claim,
    node: session.node,
    epoch: Number(session.epoch),
    state: sessionStateWord(session.state),
    startedAt: time(session.startedAt),
    clientPid: session.clientPid,
    clientHost: session.clientHost,
    program: session.program,
    transport: session.transport,
    owner: session.owner,
    devices: session.devices.map((device) => ({
      index: device.index,
      uuid: device.granted?.uuid ?? "",
      memoryBytes: Number(device.granted?.memoryBytes ?? 0n),
      computePercent: device.granted?.computePercent ?? 0,
      memoryUsedBytes: Number(device.memoryUsedBytes),
    })),
    commands: Number(session.commands),
    launches: Number(session.launches),
    waits: Number(session.waits),
    notParked: session.notParked,
  };
}

/** A reason from docs/reference/reasons.md; null: there is none, or the controller is of an earlier release. */
function reasonToJson(reason: ReasonMessage | undefined) {
  return reason === undefined ? null : { code: reason.code, args: reason.args ?? {} };
}

/** The members that `why` and `describe` show in addition to the claim itself. */
export function explanationToJson(explanation: ExplainClaimResponse) {
  return {
    obstacle: explanation.obstacle,
    queueLength: explanation.queueLength,
    waitsFor: explanation.waitsFor,
    waitsForHidden: explanation.waitsForHidden,
    expectedAt: time(explanation.expectedAt),
    nextReleaseClaim: explanation.nextReleaseClaim,
    nextReleaseAt: time(explanation.nextReleaseAt),
    facts: explanation.facts,
    factDetails: explanation.factDetails.map(({ subject, reason }) => ({
      subject,
      ...reasonToJson(reason),
    })),
  };
}

export function loginToJson(login: Login) {
  return {
    id: login.id,
    who: login.who,
    tenant: login.tenant,
    kind: login.kind,
    createdAt: time(login.createdAt),
    expiresAt: time(login.expiresAt),
  };
}

export function tokenToJson(token: Token) {
  return {
    name: token.name,
    role: token.role,
    tenant: token.tenant,
    node: token.node,
    createdAt: time(token.createdAt),
    expiresAt: time(token.expiresAt),
    createdBy: token.createdBy,
  };
}

export function auditRecordToJson(record: AuditRecord) {
  return {
    id: Number(record.id),
    at: time(record.at),
    who: record.who,
    role: record.role,
    tenant: record.tenant,
    what: record.what,
    subject: record.subject,
    why: record.why,
    result: record.result,
    hash: record.hash,
    previousHash: record.previousHash,
  };
}

export function eventToJson(event: Event) {
  return {
    id: Number(event.id),
    at: time(event.at),
    kind: event.kind,
    subject: event.subject,
    message: event.message,
    detail: reasonToJson(event.detail),
  };
}

/** `{"apiVersion", "kind", …}`. */
export function asObject(kind: string, members: object): object {
  return { apiVersion, kind, ...members };
}

/** The same as indented JSON, with a line end. */
export function renderObject(kind: string, members: object): string {
  return `${JSON.stringify(asObject(kind, members), null, 2)}\n`;
}

/** The same on one line, for streams of objects. */
export function renderObjectLine(kind: string, members: object): string {
  return `${JSON.stringify(asObject(kind, members))}\n`;
}
