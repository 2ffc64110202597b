// SPDX-License-Identifier: Apache-2.0

// Records as the API shows them.

import { create } from "@bufbuild/protobuf";
import {
  type Allocation,
  AllocationSchema,
  type Claim,
  ClaimSchema,
  ClaimState,
  claimChoices,
  type Device,
  DeviceHealth,
  DeviceSchema,
  type Event,
  EventSchema,
  type Node,
  NodeSchema,
  NodeState,
  type Session,
  SessionSchema,
  SessionState,
} from "@millpond/api";
import { versionOf } from "./claims.ts";
import { labelsOf } from "./picture.ts";
import { isLive, type Pool } from "./pool.ts";
import type { PresentSession } from "./presence.ts";
import { usableSizes } from "./session-sizes.ts";
import type { AllocationRecord, ClaimRecord, DeviceRecord, EventRecord, NodeRecord } from "./store/store.ts";

const claimStates = {
  dormant: ClaimState.DORMANT,
  pending: ClaimState.PENDING,
  bound: ClaimState.BOUND,
  released: ClaimState.RELEASED,
  failed: ClaimState.FAILED,
} as const;

const sessionStates = {
  assigned: SessionState.ASSIGNED,
  connected: SessionState.CONNECTED,
  closing: SessionState.CLOSING,
} as const;

export function toClaim(pool: Pool, claim: ClaimRecord, positions = waitingPositions(pool)): Claim {
  const allocation = pool.ledger.allocations.ofClaim(claim.name);
  const held = pool.ledger.allocations.heldBy(claim.name);
  const leaseEndMs = pool.clock.unixMs() + pool.leases.remainingMs(claim.name);
  return create(ClaimSchema, {
    name: claim.name,
    gpus: claim.gpus,
    memoryBytes: claim.memoryBytes,
    memoryPercent: claim.memoryPercent,
    computePercent: claim.computePercent,
    owner: claim.owner,
    leaseSeconds: claim.leaseSeconds,
    sessionBound: claim.isSessionBound,
    lazy: claim.isLazy,
    lazyIdleSeconds: claim.lazyIdleSeconds,
    exclusive: claim.isExclusive,
    models: [...claim.models],
    minComputeCapability: claim.minComputeCapability,
    pool: claim.pool,
    tenant: claim.tenant,
    queue: claim.queue,
    priority: claim.priority,
    preemptible: claim.isPreemptible,
    gang: claim.gang,
    gangSize: claim.gangSize,
    placement: claimChoices.placement[claim.placement],
    locality: claimChoices.locality[claim.locality],
    sameNode: claim.isSameNode,
    labels: claim.labels,
    nodeLabels: claim.nodeLabels,
    affinity: claim.affinity,
    antiAffinity: claim.antiAffinity,
    timeLimitSeconds: claim.timeLimitSeconds,
    idleLimitSeconds: claim.idleLimitSeconds,
    serviceClass: claimChoices.serviceClass[claim.serviceClass],
    nodeLoss: claimChoices.nodeLoss[claim.nodeLoss],
    clientHost: claim.clientHost,
    graceSeconds: claim.graceSeconds,
    state: claimStates[claim.state],
    reason: claim.state === "pending" ? whyWaiting(pool, claim.name) : claim.reason,
    version: BigInt(versionOf(pool, claim)),
    ...(allocation === undefined ? {} : { allocation: toAllocation(pool, allocation) }),
    queuePosition: positions.get(claim.name) ?? 0,
    openSessions: held.reduce((sum, { node, epoch }) => sum + pool.presence.openSessions(node, epoch), 0),
    createdAt: BigInt(claim.createdAt),
    boundAt: BigInt(claim.boundAt ?? 0),
    endedAt: BigInt(claim.endedAt ?? 0),
    leaseExpiresAt: isLive(claim) && pool.isLeading ? BigInt(Math.floor(leaseEndMs / 1000)) : 0n,
    preemptAt: BigInt(claim.preemptAt ?? 0),
    requeues: claim.requeues,
    waitingSince: BigInt(claim.waitingSince ?? 0),
  });
}

function whyWaiting(pool: Pool, name: string): string {
  if (!pool.isLeading) {
    return "the controller that leads knows why";
  }
  return pool.waiting.of(name)?.reason ?? "it has not been looked at since the controller started";
}

/** The positions of the waiting claims in their queues, from 1. */
export function waitingPositions(pool: Pool): ReadonlyMap<string, number> {
  const lengths = new Map<string, number>();
  const positions = new Map<string, number>();
  for (const name of pool.waiting.order) {
    const claim = pool.ledger.claims.get(name);
    if (claim?.state === "pending") {
      const position = (lengths.get(claim.queue) ?? 0) + 1;
      lengths.set(claim.queue, position);
      positions.set(name, position);
    }
  }
  return positions;
}

export function claimsByArrival(pool: Pool): ClaimRecord[] {
  return [...pool.ledger.claims.values()].sort((a, b) => a.arrival - b.arrival);
}

/** The same message each time: agents are told of all that is on their nodes with every answer. */
const allocationMessages = new WeakMap<AllocationRecord, Allocation>();

export function toAllocation(pool: Pool, record: AllocationRecord): Allocation {
  let message = allocationMessages.get(record);
  if (message === undefined) {
    const { claim, node, epoch, sizeRevision } = record;
    message = create(AllocationSchema, {
      claim,
      node,
      epoch: BigInt(epoch),
      devices: usableSizes(record).map((each) => ({ ...each })),
      sizeRevision: BigInt(sizeRevision),
      // The claim of an allocation that is given back may be forgotten: no session of it is opened any more.
      serviceClass: claimChoices.serviceClass[pool.ledger.claims.get(claim)?.serviceClass ?? "guaranteed"],
    });
    allocationMessages.set(record, message);
  }
  return message;
}

export function toNode(pool: Pool, node: NodeRecord): Node {
  const presence = pool.presence.of(node.name);
  const isReady = presence?.isReady ?? false;
  return create(NodeSchema, {
    name: node.name,
    state: isReady ? NodeState.READY : NodeState.NOT_READY,
    reason: isReady ? "" : silenceOf(pool, node.name),
    cordoned: node.isCordoned,
    cordonReason: node.cordonReason,
    labels: labelsOf(node),
    agentUrl: node.agentUrl,
    agentVersion: node.agentVersion,
    run: presence?.run ?? "",
    hostname: node.hostname,
    bootId: node.bootId,
    warmWorkers: presence?.warmWorkers ?? 0,
    joinedAt: BigInt(node.joinedAt),
    lastContactAt: BigInt(presence?.lastContactAt ?? 0),
    devices: toDevices(pool, node),
  });
}

function silenceOf(pool: Pool, name: string): string {
  const presence = pool.presence.of(name);
  if (presence === undefined) {
    return "no word from its agent since the controller started";
  }
  const seconds = Math.round((pool.clock.monotonicMs() - presence.lastContactMs) / 1000);
  return `no word from its agent for ${seconds} s`;
}

/** In order of their ordinals. */
export function toDevices(pool: Pool, node: NodeRecord): Device[] {
  const allocations = pool.ledger.allocations.onNode(node.name);
  const sessions = [...(pool.presence.of(node.name)?.sessions.values() ?? [])];
  return node.devices.map((device) => toDevice(node.name, device, allocations, sessions));
}

function toDevice(
  node: string,
  device: DeviceRecord,
  allocations: readonly AllocationRecord[],
  sessions: readonly PresentSession[],
): Device {
  const { isHealthy, isCordoned, ...properties } = device;
  const grants = allocations.flatMap(({ devices }) => devices.filter(({ uuid }) => uuid === device.uuid));
  const users = sessions.filter(({ memoryUsed }) => memoryUsed.has(device.uuid));
  return create(DeviceSchema, {
    ...properties,
    node,
    cordoned: isCordoned,
    health: isHealthy ? DeviceHealth.HEALTHY : DeviceHealth.UNHEALTHY,
    allocatedMemoryBytes: grants.reduce((sum, { memoryBytes }) => sum + memoryBytes, 0n),
    allocatedComputePercent: grants.reduce((sum, { computePercent }) => sum + computePercent, 0),
    virtualGpus: grants.length,
    usedMemoryBytes: users.reduce((sum, { memoryUsed }) => sum + (memoryUsed.get(device.uuid) ?? 0n), 0n),
    openSessions: users.length,
  });
}

export function toSession(pool: Pool, node: string, session: PresentSession): Session {
  const allocation = pool.ledger.allocations.byEpoch.get(session.epoch);
  const indexes = new Map(pool.ledger.nodes.get(node)?.devices.map(({ uuid, index }) => [uuid, index]));
  const granted = allocation?.claim === session.claim ? allocation.devices : [];
  return create(SessionSchema, {
    id: session.id,
    claim: session.claim,
    node,
    epoch: BigInt(session.epoch),
    state: sessionStates[session.state],
    startedAt: BigInt(session.startedAt),
    clientPid: session.clientPid || (session.client?.pid ?? 0),
    clientHost: session.clientHost || (session.client?.host ?? ""),
    program: session.program || (session.client?.program ?? ""),
    transport: session.transport,
    devices: granted.map((device) => ({
      granted: { ...device },
      memoryUsedBytes: session.memoryUsed.get(device.uuid) ?? 0n,
      index: indexes.get(device.uuid) ?? 0,
    })),
    commands: session.commands,
    launches: session.launches,
    waits: session.waits,
    notParked: session.notParked,
    owner: pool.ledger.claims.get(session.claim)?.owner ?? "",
  });
}

export function toEvent({ id, at, kind, subject, message }: EventRecord): Event {
  return create(EventSchema, { id: BigInt(id), at: BigInt(at), kind, subject, message });
}
