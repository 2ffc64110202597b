// SPDX-License-Identifier: Apache-2.0

// Records as the API shows them.

import { create } from "@bufbuild/protobuf";
import {
  type Allocation,
  AllocationSchema,
  type Claim,
  claimChoices,
  ClaimSchema,
  ClaimState,
  type Device,
  DeviceHealth,
  DeviceSchema,
  type Event,
  EventSchema,
  type MayKnow,
  mayKnowAll,
  type Node,
  NodeSchema,
  NodeState,
  reason,
  type Reason,
  renderReason,
  toReasonMessage,
  type Session,
  SessionSchema,
  SessionState,
} from "@millpond/api";
import type { Caller } from "../domain/caller.ts";
import { visibilityOf } from "../auth/visibility.ts";
import { versionOf, waitingPositions } from "../pool/claim-views.ts";
import { openSessions } from "../domain/observed-state.ts";
import { labelsOf } from "../domain/to-scheduler-holding.ts";
import {
  type AllocationRecord,
  type ClaimRecord,
  type DeviceRecord,
  type EventRecord,
  type NodeRecord,
  isLive,
} from "../domain/records.ts";
import { type Pool } from "../pool/pool.ts";
import type { PresentSession } from "../agents/node-liveness.ts";
import { usableSizes } from "../domain/session-sizes.ts";

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

export function toClaim(
  pool: Pool,
  claim: ClaimRecord,
  mayKnow: MayKnow,
  positions = waitingPositions(pool),
): Claim {
  const why = claim.state === "pending" ? whyWaiting(pool, claim.name) : claim.reason;
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
    user: claim.user,
    queue: claim.queue,
    priority: claim.priority,
    preemptible: claim.isPreemptible,
    gang: claim.gang,
    gangSize: claim.gangSize,
    gangRank: claim.gangRank,
    rendezvous: claim.rendezvous,
    placement: claimChoices.placement[claim.placement],
    locality: claimChoices.locality[claim.locality],
    sameNode: claim.isSameNode,
    labels: claim.labels,
    nodeLabels: claim.nodeLabels,
    onlyDevices: [...claim.onlyDevices],
    onlyNode: claim.onlyNode,
    affinity: claim.affinity,
    antiAffinity: claim.antiAffinity,
    timeLimitSeconds: claim.timeLimitSeconds,
    idleLimitSeconds: claim.idleLimitSeconds,
    serviceClass: claimChoices.serviceClass[claim.serviceClass],
    nodeLoss: claimChoices.nodeLoss[claim.nodeLoss],
    clientHost: claim.clientHost,
    graceSeconds: claim.graceSeconds,
    state: claimStates[claim.state],
    ...(why === undefined ? {} : { reason: renderReason(why, mayKnow), why: toReasonMessage(why, mayKnow) }),
    version: BigInt(versionOf(pool, claim)),
    ...(allocation === undefined ? {} : { allocation: toAllocation(pool, allocation) }),
    queuePosition: positions.get(claim.name) ?? 0,
    openSessions: held.reduce((sum, each) => sum + openSessions(pool.liveness, each), 0),
    createdAt: BigInt(claim.createdAt),
    boundAt: BigInt(claim.boundAt ?? 0),
    endedAt: BigInt(claim.endedAt ?? 0),
    leaseExpiresAt: isLive(claim) && pool.isLeading ? BigInt(Math.floor(leaseEndMs / 1000)) : 0n,
    preemptAt: BigInt(claim.preemptAt ?? 0),
    requeues: claim.requeues,
    waitingSince: BigInt(claim.waitingSince ?? 0),
  });
}

function whyWaiting(pool: Pool, name: string): Reason {
  if (!pool.isLeading) {
    return reason("leader-knows");
  }
  return pool.waiting.of(name)?.reason ?? reason("not-planned-since-start");
}

/** Reuses messages: every answer to an agent lists all allocations of its node. */
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
      // The claim of an allocation that is being released may be forgotten: no session of it can be opened any more.
      serviceClass: claimChoices.serviceClass[pool.ledger.claims.get(claim)?.serviceClass ?? "guaranteed"],
    });
    allocationMessages.set(record, message);
  }
  return message;
}

/** @param viewer The caller that the answer is for. */
export function toNode(pool: Pool, node: NodeRecord, viewer: Viewer): Node {
  const liveness = pool.liveness.of(node.name);
  const isReady = liveness?.isReady ?? false;
  return create(NodeSchema, {
    name: node.name,
    state: isReady ? NodeState.READY : NodeState.NOT_READY,
    reason: isReady ? "" : renderReason(silenceOf(pool, node.name), mayKnowAll),
    cordoned: node.isCordoned,
    cordonReason: node.cordonReason,
    labels: labelsOf(node),
    agentUrl: node.agentUrl,
    agentVersion: node.agentVersion,
    run: liveness?.run ?? "",
    hostname: node.hostname,
    bootId: node.bootId,
    warmWorkers: liveness?.warmWorkers ?? 0,
    joinedAt: BigInt(node.joinedAt),
    lastContactAt: BigInt(liveness?.lastContactAt ?? 0),
    devices: toDevices(pool, node, viewer),
  });
}

function silenceOf(pool: Pool, name: string): Reason {
  const liveness = pool.liveness.of(name);
  if (liveness === undefined) {
    return reason("node-silent-since-start");
  }
  const seconds = Math.round((pool.clock.monotonicMs() - liveness.lastContactMs) / 1000);
  return reason("node-silent", { seconds });
}

type Viewer = Pick<Caller, "role" | "tenant" | "claim" | "program">;

/** In order of their ordinals. */
export function toDevices(pool: Pool, node: NodeRecord, viewer: Viewer): Device[] {
  const allocations = pool.ledger.allocations.onNode(node.name);
  const liveness = pool.liveness.of(node.name);
  const sessions = [...(liveness?.sessions.values() ?? [])];
  return node.devices.map((device) => {
    const message = toDevice(node.name, device, allocations, sessions);
    // Measurements of a node that is not in contact are stale.
    if (liveness?.isReady === true && maySeeCard(pool, viewer, device, allocations)) {
      message.card = liveness.figures.get(device.uuid);
    }
    return message;
  });
}

/**
 * Temperature, power and clocks of a device reflect the work of all claims on it. Only administrators see them, and a
 * tenant whose claim is alone on the device and has all of its memory: agents show them to the same claims.
 */
function maySeeCard(
  pool: Pool,
  viewer: Viewer,
  { uuid, memoryBytes }: DeviceRecord,
  allocations: readonly AllocationRecord[],
): boolean {
  if (viewer.role === "admin") {
    return true;
  }
  const [only, ...others] = allocations.flatMap(({ claim, devices }) =>
    devices.filter((granted) => granted.uuid === uuid).map((granted) => ({ claim, granted })),
  );
  const claim = only === undefined ? undefined : pool.ledger.claims.get(only.claim);
  return (
    only !== undefined &&
    others.length === 0 &&
    only.granted.memoryBytes >= memoryBytes &&
    claim !== undefined &&
    // Agents have no tenant either.
    viewer.tenant !== "" &&
    visibilityOf(viewer)(claim)
  );
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
    ...(users.every(({ computeUsed }) => computeUsed.has(device.uuid)) && {
      usedComputePercent: Math.min(
        users.reduce((sum, { computeUsed }) => sum + (computeUsed.get(device.uuid) ?? 0), 0),
        100,
      ),
    }),
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
      ...computeUse(session, device.uuid),
    })),
    commands: session.commands,
    launches: session.launches,
    waits: session.waits,
    notParked: session.notParked,
    owner: pool.ledger.claims.get(session.claim)?.owner ?? "",
  });
}

function computeUse(session: PresentSession, uuid: string): { computeUsedPercent?: number } {
  const used = session.computeUsed.get(uuid);
  return used === undefined ? {} : { computeUsedPercent: used };
}

export function toEvent({ id, at, kind, subject, detail: why }: EventRecord, mayKnow: MayKnow): Event {
  const detail = toReasonMessage(why, mayKnow);
  return create(EventSchema, { id: BigInt(id), at: BigInt(at), kind, subject, message: detail.text, detail });
}
