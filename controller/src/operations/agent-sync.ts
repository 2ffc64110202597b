// SPDX-License-Identifier: Apache-2.0

// Reports of agents, and the answers to them.

import { isDeepStrictEqual } from "node:util";
import { formatTime, millpondError, quote, reason } from "@millpond/api";
import type { ReadTicket } from "./adopt-sessions.ts";
import { AdoptionPlan } from "./adopt-sessions.ts";
import type { AgentReport, NodeDescription } from "../domain/agent-report.ts";
import type { AllocationRecord, DeviceRecord, NodeRecord, RemovedNodeRecord } from "../domain/records.ts";
import type { Transaction } from "../state/transaction.ts";
import type { Pool } from "../pool/pool.ts";
import { type AgentCaller, bindTokenToNode, refuseOtherNode, refuseOtherToken } from "./agent-token.ts";
import { termIsOver } from "../state/store-errors.ts";

/** How long an agent's sync call is held open when there is no new work. */
const syncAnswerAfterMs = 2_000;

/** The desired state of a node. */
export interface DesiredState {
  readonly revision: number;
  readonly allocations: readonly AllocationRecord[];
  /** Position among the answers and tickets of the term. */
  readonly order: number;
  /** Faults of devices that an operator has cleared, by UUID. */
  readonly clearedFaults: ReadonlyMap<string, number>;
  /**
   * Sequence number of the agent's call that described the node; 0: the report was not applied, because no description
   * is known.
   */
  readonly describedBy: number;
}

/**
 * Applies a report and answers with the desired state of the node: immediately if it differs from the agent's,
 * otherwise when it changes, after 2 s, or when a newer call of the agent replaces this one.
 *
 * @param caller Its token determines for which node it may report; an unbound token is bound to the first node that
 * joins with it.
 * @param readTicket Reads a ticket of this pool.
 * @throws MILLPOND_E_FORBIDDEN; MILLPOND_E_NODE_NAME_TAKEN; MILLPOND_E_NODE_REMOVED; MILLPOND_E_NOT_LEADER when the
 *   agent knows a later leader; the signal's reason when that is aborted.
 */
export async function sync(
  pool: Pool,
  report: AgentReport,
  caller: AgentCaller,
  signal: AbortSignal,
  readTicket: ReadTicket,
): Promise<DesiredState> {
  const { node, knownRevision, knownTerm, describedBy } = report;
  if (knownTerm > pool.ledger.term) {
    throw termIsOver(pool.ledger.term);
  }
  refuseOtherNode(caller, node);
  const removed = pool.ledger.removedNodes.get(node);
  refuseRemoved(removed, caller.madeAt);
  if (pool.liveness.of(node)?.run !== report.run) {
    refuseOtherToken(pool.ledger.tokens.values(), caller, { name: node, removedRevision: removed?.revision });
  }
  const admission = pool.liveness.admit(report, (epoch) => pool.ledger.allocations.byEpoch.has(epoch));
  const { description } = admission;
  if (description === undefined) {
    return desiredOf(pool, node, 0);
  }
  const adoption = AdoptionPlan.of(pool, report, readTicket);
  if (admission.isStale) {
    // Its sessions may not have been adopted yet, and would be ended.
    if (adoption.isUrgent(pool)) {
      throw millpondError("MILLPOND_E_NOT_LEADER", "a newer call of the same agent is being processed");
    }
    return desiredOf(pool, node, describedBy);
  }
  pool.activity.observe(report.sessions);
  pool.activity.count(report.activity);
  const { superseded } = admission;
  try {
    const { hasComeBack, hasNews } = admission;
    if (
      caller.node === "" ||
      hasComeBack ||
      hasNews ||
      adoption.isUrgent(pool) ||
      isUnsettled(pool, node) ||
      hasChanged(pool, node, description)
    ) {
      const strangers = report.sessions.length - adoption.adoptable;
      const takeItOver = (transaction: Transaction) => {
        refuseRemoved(transaction.removedNodes.get(node), caller.madeAt);
        if (transaction.nodes.get(node) !== undefined || strangers === 0) {
          bindTokenToNode(transaction, caller, node);
          takeOver(transaction, node, { description, hasComeBack, caller });
          adoption.carryOut(pool, transaction);
          // Sessions from before its removal may use capacity that would be granted to others.
        } else if (admission.isFirst) {
          const why = reason("node-waits-for-sessions", { sessions: strangers });
          transaction.addEvent("NodeWaits", `node/${node}`, why);
        }
      };
      await pool.mutate(takeItOver, { node });
    }
    if (hasNews || admission.isFirst) {
      pool.noteTicketsOf(node);
    }
    if (admission.hasNewKeys) {
      // Tickets may be waiting for this key.
      pool.nodeWatchers.wake(node);
    }
    pool.touch();
    if (report.isLeaving) {
      await leave(pool, node);
    } else if (!admission.isFirst) {
      await untilRevisionIsNot(pool, node, knownRevision, [signal, superseded]);
    }
    signal.throwIfAborted();
    pool.liveness.endPoll(node, superseded, "answered");
    return desiredOf(pool, node, describedBy);
  } finally {
    // Nothing to do when the call has been answered.
    pool.liveness.endPoll(node, superseded, "hung up");
  }
}

/** Nothing is granted on a node from when its agent stops. */
async function leave(pool: Pool, name: string): Promise<void> {
  pool.liveness.leave(name);
  await pool.mutate((transaction) => {
    if (transaction.nodes.get(name) !== undefined) {
      transaction.addEvent("NodeLost", `node/${name}`, reason("agent-stopped"));
    }
  });
}

export function nodeNotFound(name: string) {
  return millpondError("MILLPOND_E_NOT_FOUND", `there is no node ${quote(name)}`);
}

async function untilRevisionIsNot(
  pool: Pool,
  name: string,
  known: number,
  signals: readonly AbortSignal[],
): Promise<void> {
  const endMs = pool.clock.monotonicMs() + syncAnswerAfterMs;
  while ((pool.ledger.nodes.get(name)?.revision ?? 0) === known) {
    const wake = await pool.nodeWatchers.wait(name, endMs - pool.clock.monotonicMs(), ...signals);
    if (wake !== "changed") {
      return;
    }
  }
}

function desiredOf(pool: Pool, name: string, describedBy: number): DesiredState {
  return {
    revision: pool.ledger.nodes.get(name)?.revision ?? 0,
    allocations: pool.ledger.allocations
      .onNode(name)
      .filter(({ releasedRevision }) => releasedRevision === null),
    order: pool.nextOrder(),
    clearedFaults: pool.liveness.clearedFaults(name),
    describedBy,
  };
}

/** The join credentials of a removed node's agent are no longer valid for it. */
function refuseRemoved(removed: RemovedNodeRecord | undefined, madeAt: number): void {
  if (removed !== undefined && madeAt <= removed.revision) {
    throw millpondError(
      "MILLPOND_E_NODE_REMOVED",
      `node ${removed.name} was removed from the pool at ${formatTime(removed.removedAt)}, and the token of this agent was made before that`,
    );
  }
}

function takeOver(
  transaction: Transaction,
  name: string,
  {
    description,
    hasComeBack,
    caller,
  }: {
    readonly description: NodeDescription;
    readonly hasComeBack: boolean;
    readonly caller: AgentCaller;
  },
): void {
  const before = transaction.nodes.get(name);
  const allocations = transaction.allocations.onNode(name);
  const node = toNodeRecord(name, description, { before, allocations, birth: transaction });
  const subject = `node/${node.name}`;
  if (before === undefined) {
    transaction.addEvent(
      "NodeJoined",
      subject,
      reason("node-joined", { devices: node.devices.length, url: node.agentUrl }),
    );
  } else if (hasComeBack) {
    transaction.addEvent("NodeReady", subject, reason("node-ready", { url: node.agentUrl }));
  }
  if (node === before) {
    return;
  }
  transaction.nodes.put(node);
  recordPlace(transaction, caller, before, node);
  for (const device of node.devices) {
    const known = before?.devices.find(({ uuid }) => uuid === device.uuid);
    if (device.isHealthy !== (known?.isHealthy ?? true)) {
      const kind = device.isHealthy ? "DeviceHealthy" : "DeviceUnhealthy";
      const detail = device.isHealthy
        ? reason("healthy")
        : reason("unhealthy", { text: device.healthReason });
      transaction.addEvent(kind, `device/${node.name}/${device.index}`, detail);
    }
  }
}

/** Records in the audit where programs are sent from now on, and whose token reported that address. */
function recordPlace(
  transaction: Transaction,
  { name: who }: AgentCaller,
  before: NodeRecord | undefined,
  node: NodeRecord,
): void {
  const place = ({ agentUrl, devices }: NodeRecord): string => {
    const uuids = devices.map(({ uuid }) => uuid).join(", ");
    return `at ${agentUrl} with ${uuids === "" ? "no devices" : uuids}`;
  };
  if (before !== undefined && place(before) === place(node)) {
    return;
  }
  transaction.audit.push({
    at: transaction.now,
    who,
    role: "agent",
    tenant: "",
    what: "AgentService/Sync",
    subject: `node/${node.name}`,
    why: `${before === undefined ? "joins" : "is"} ${place(node)}`,
    result: "ok",
  });
}

/** Whether an ended claim still holds devices of the node, or a claim on it is being resized. */
function isUnsettled(pool: Pool, name: string): boolean {
  return pool.ledger.allocations
    .onNode(name)
    .some(({ releasedRevision, resizing }) => releasedRevision !== null || resizing !== null);
}

function hasChanged(pool: Pool, name: string, description: NodeDescription): boolean {
  const before = pool.ledger.nodes.get(name);
  const allocations = pool.ledger.allocations.onNode(name);
  return toNodeRecord(name, description, { before, allocations, birth: { revision: 0, now: 0 } }) !== before;
}

/**
 * Devices of records by the description that they equal: descriptions are compared constantly and hardly ever differ.
 */
const recorded = new WeakMap<NodeDescription, NodeRecord["devices"]>();

/** @returns The previous record, unless the description changes it. */
function toNodeRecord(
  name: string,
  description: NodeDescription,
  {
    before,
    allocations,
    birth,
  }: {
    readonly before: NodeRecord | undefined;
    readonly allocations: readonly AllocationRecord[];
    readonly birth: { readonly revision: number; readonly now: number };
  },
): NodeRecord {
  if (before !== undefined && recorded.get(description) === before.devices) {
    return before;
  }
  const node: NodeRecord = {
    name,
    agentUrl: description.agentUrl,
    agentVersion: description.agentVersion,
    hostname: description.hostname,
    bootId: description.bootId,
    isCordoned: before?.isCordoned ?? false,
    cordonReason: before?.cordonReason ?? "",
    labels: before?.labels ?? {},
    agentLabels: description.labels,
    revision: before?.revision ?? birth.revision,
    joinedAt: before?.joinedAt ?? birth.now,
    devices: toDeviceRecords(description, before?.devices ?? [], heldDevices(allocations)),
  };
  if (before === undefined || !isDeepStrictEqual(node, before)) {
    return node;
  }
  // A device kept only because an allocation holds it is dropped with that allocation.
  if (before.devices.length === description.devices.length) {
    recorded.set(description, before.devices);
  }
  return before;
}

/** UUIDs of the devices that an allocation holds. */
function heldDevices(allocations: readonly AllocationRecord[]): ReadonlySet<string> {
  return new Set(allocations.flatMap(({ devices }) => devices.map(({ uuid }) => uuid)));
}

function toDeviceRecords(
  description: NodeDescription,
  before: NodeRecord["devices"],
  held: ReadonlySet<string>,
): DeviceRecord[] {
  const reported = new Set(description.devices.map(({ uuid }) => uuid));
  const known = new Map(before.map((device) => [device.uuid, device]));
  const present = description.devices.map((device) => ({
    ...device,
    isCordoned: known.get(device.uuid)?.isCordoned ?? false,
    cordonReason: known.get(device.uuid)?.cordonReason ?? "",
  }));
  // A missing device is kept while an allocation holds it.
  const missing = before
    .filter(({ uuid }) => held.has(uuid) && !reported.has(uuid))
    .map(
      (device): DeviceRecord => ({
        ...device,
        isHealthy: false,
        healthReason: "its agent no longer finds it",
      }),
    );
  return [...present, ...missing].sort((a, b) => a.index - b.index || (a.uuid < b.uuid ? -1 : 1));
}
