// SPDX-License-Identifier: Apache-2.0

// What agents say, and what they are told.

import { isDeepStrictEqual } from "node:util";
import { formatTime, millpondError, quote } from "@millpond/api";
import type { Caller } from "./callers.ts";
import type { Transaction } from "./transaction.ts";
import type { Pool } from "./pool.ts";
import type { AgentReport, NodeDescription } from "./report.ts";
import { termIsOver } from "./store/store-errors.ts";
import type { AllocationRecord, DeviceRecord, NodeRecord, RemovedNodeRecord } from "./store/store.ts";

/** An agent that has nothing new to do is answered after so long. */
const syncAnswerAfterMs = 2_000;

/** What should be on a node. */
export interface Desired {
  readonly revision: number;
  readonly allocations: readonly AllocationRecord[];
  /** Among the answers and tickets of the term. */
  readonly order: number;
  /** Faults of devices that somebody has cleared, by UUID. */
  readonly clearedFaults: ReadonlyMap<string, number>;
  /** Sequence of the agent's call that described the node; 0: nothing was taken over for want of one. */
  readonly describedBy: number;
}

/**
 * Takes a report over and answers with what should be on the node: at once when that is not what the agent knows, else
 * when it changes, after 2 s, or when a newer call of the agent takes the place of this one.
 *
 * @param caller Whose token says when it was made.
 * @throws MILLPOND_E_NODE_NAME_TAKEN; MILLPOND_E_NODE_REMOVED; MILLPOND_E_NOT_LEADER when the agent knows one that has begun to lead since; the
 *   signal's reason when that is aborted.
 */
export async function sync(
  pool: Pool,
  report: AgentReport,
  { madeAt }: Pick<Caller, "madeAt">,
  signal: AbortSignal,
): Promise<Desired> {
  const { node, knownRevision, knownTerm, describedBy } = report;
  if (knownTerm > pool.ledger.term) {
    throw termIsOver(pool.ledger.term);
  }
  refuseRemoved(pool.ledger.removedNodes.get(node), madeAt);
  const admission = pool.presence.admit(report, (epoch) => pool.ledger.allocations.byEpoch.has(epoch));
  const { description } = admission;
  if (description === undefined) {
    return desiredOf(pool, node, 0);
  }
  if (admission.isStale) {
    return desiredOf(pool, node, describedBy);
  }
  pool.activity.observe(report.sessions);
  pool.activity.count(report.activity);
  const { superseded } = admission;
  try {
    const { hasComeBack, hasNews } = admission;
    if (hasComeBack || hasNews || isUnsettled(pool, node) || hasChanged(pool, node, description)) {
      const strangers = report.sessions.length;
      const takeItOver = (transaction: Transaction) => {
        refuseRemoved(transaction.removedNode(node), madeAt);
        if (transaction.node(node) !== undefined || strangers === 0) {
          takeOver(transaction, node, { description, hasComeBack });
          // Sessions of before its removal may have what others would be granted.
        } else if (admission.isFirst) {
          const what = `does not join before its ${strangers} sessions have ended, which this pool knows nothing of`;
          transaction.addEvent("NodeWaits", `node/${node}`, what);
        }
      };
      await pool.mutate(takeItOver, { node });
    }
    if (hasNews || admission.isFirst) {
      pool.noteTicketsOf(node);
    }
    pool.touch();
    if (!admission.isFirst) {
      await untilRevisionIsNot(pool, node, knownRevision, [signal, superseded]);
    }
    signal.throwIfAborted();
    pool.presence.endPoll(node, superseded, "answered");
    return desiredOf(pool, node, describedBy);
  } finally {
    // Nothing to do when the call has been answered.
    pool.presence.endPoll(node, superseded, "hung up");
  }
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

function desiredOf(pool: Pool, name: string, describedBy: number): Desired {
  return {
    revision: pool.ledger.nodes.get(name)?.revision ?? 0,
    allocations: pool.ledger.allocations
      .onNode(name)
      .filter(({ releasedRevision }) => releasedRevision === null),
    order: pool.nextOrder(),
    clearedFaults: pool.presence.clearedFaults(name),
    describedBy,
  };
}

/** What the agent of a node that was removed had to join with is no longer good for it. */
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
  { description, hasComeBack }: { readonly description: NodeDescription; readonly hasComeBack: boolean },
): void {
  const before = transaction.node(name);
  const allocations = transaction.allocations.onNode(name);
  const node = toNodeRecord(name, description, { before, allocations, birth: transaction });
  const subject = `node/${node.name}`;
  if (before === undefined) {
    transaction.addEvent(
      "NodeJoined",
      subject,
      `joined with ${node.devices.length} devices at ${node.agentUrl}`,
    );
  } else if (hasComeBack) {
    transaction.addEvent("NodeReady", subject, `its agent is in contact at ${node.agentUrl}`);
  }
  if (node === before) {
    return;
  }
  transaction.putNode(node);
  for (const device of node.devices) {
    const known = before?.devices.find(({ uuid }) => uuid === device.uuid);
    if (device.isHealthy !== (known?.isHealthy ?? true)) {
      const kind = device.isHealthy ? "DeviceHealthy" : "DeviceUnhealthy";
      const message = device.isHealthy ? "is healthy again" : device.healthReason;
      transaction.addEvent(kind, `device/${node.name}/${device.index}`, message);
    }
  }
}

/** Whether a claim that has ended still holds devices of the node, or one is being resized. */
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

/** By description the devices of the record that says the same: one is looked at again and again, and hardly ever differs. */
const recorded = new WeakMap<NodeDescription, NodeRecord["devices"]>();

/** @returns The record before, unless the description changes it. */
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
  // One that is kept only because somebody holds it goes when he does.
  if (before.devices.length === description.devices.length) {
    recorded.set(description, before.devices);
  }
  return before;
}

/** UUIDs of the devices that somebody holds. */
function heldDevices(allocations: readonly AllocationRecord[]): ReadonlySet<string> {
  return new Set(allocations.flatMap(({ devices }) => devices.map(({ uuid }) => uuid)));
}

function toDeviceRecords(
  description: NodeDescription,
  before: NodeRecord["devices"],
  held: ReadonlySet<string>,
): DeviceRecord[] {
  const reported = new Set(description.devices.map(({ uuid }) => uuid));
  const cordoned = new Set(before.filter(({ isCordoned }) => isCordoned).map(({ uuid }) => uuid));
  const present = description.devices.map((device) => ({ ...device, isCordoned: cordoned.has(device.uuid) }));
  // A device that is gone is kept for as long as somebody holds it.
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
