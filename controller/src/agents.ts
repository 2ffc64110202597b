// SPDX-License-Identifier: Apache-2.0

// What agents say, and what they are told.

import { isDeepStrictEqual } from "node:util";
import { millpondError, quote } from "@millpond/api";
import type { Transaction } from "./transaction.ts";
import type { Pool } from "./pool.ts";
import type { AgentReport } from "./report.ts";
import { termIsOver } from "./store/store-errors.ts";
import type { AllocationRecord, DeviceRecord, NodeRecord } from "./store/store.ts";

/** An agent that has nothing new to do is answered after so long. */
const syncAnswerAfterMs = 2_000;

/** What should be on a node. */
export interface Desired {
  readonly revision: number;
  readonly allocations: readonly AllocationRecord[];
  /** Among the answers and tickets of the term. */
  readonly order: number;
}

/**
 * Takes a report over and answers with what should be on the node: at once when that is not what the agent knows, else
 * when it changes, after 2 s, or when a newer call of the agent takes the place of this one.
 *
 * @throws MILLPOND_E_NODE_NAME_TAKEN; MILLPOND_E_NOT_LEADER when the agent knows one that has begun to lead since; the
 *   signal's reason when that is aborted.
 */
export async function sync(pool: Pool, report: AgentReport, signal: AbortSignal): Promise<Desired> {
  const { node, knownRevision, knownTerm } = report;
  if (knownTerm > pool.ledger.term) {
    throw termIsOver(pool.ledger.term);
  }
  const admission = pool.presence.admit(report, (epoch) => pool.ledger.allocations.byEpoch.has(epoch));
  if (admission.isStale) {
    return desiredOf(pool, node);
  }
  pool.activity.observe(report.sessions);
  const { superseded } = admission;
  try {
    if (admission.hasComeBack || admission.hasNews || isUnsettled(pool, node) || hasChanged(pool, report)) {
      await pool.mutate((transaction) => takeOver(transaction, report, admission.hasComeBack), { node });
    }
    pool.touch();
    if (!admission.isFirst) {
      await untilRevisionIsNot(pool, node, knownRevision, [signal, superseded]);
    }
    signal.throwIfAborted();
    pool.presence.endPoll(node, superseded, "answered");
    return desiredOf(pool, node);
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
  while (pool.ledger.nodes.get(name)?.revision === known) {
    const wake = await pool.nodeWatchers.wait(name, endMs - pool.clock.monotonicMs(), ...signals);
    if (wake !== "changed") {
      return;
    }
  }
}

function desiredOf(pool: Pool, name: string): Desired {
  return {
    revision: pool.ledger.nodes.get(name)?.revision ?? 0,
    allocations: pool.ledger.allocations
      .onNode(name)
      .filter(({ releasedRevision }) => releasedRevision === null),
    order: pool.nextOrder(),
  };
}

function takeOver(transaction: Transaction, report: AgentReport, hasComeBack: boolean): void {
  const before = transaction.node(report.node);
  const node = toNodeRecord(
    report,
    before,
    heldDevices(transaction.allocations.onNode(report.node)),
    transaction,
  );
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
  if (!isSame(node, before)) {
    transaction.putNode(node);
  }
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

function hasChanged(pool: Pool, report: AgentReport): boolean {
  const before = pool.ledger.nodes.get(report.node);
  const held = heldDevices(pool.ledger.allocations.onNode(report.node));
  return !isSame(toNodeRecord(report, before, held, { revision: 0, now: 0 }), before);
}

/** UUIDs of the devices that somebody holds. */
function heldDevices(allocations: readonly AllocationRecord[]): ReadonlySet<string> {
  return new Set(allocations.flatMap(({ devices }) => devices.map(({ uuid }) => uuid)));
}

function toNodeRecord(
  report: AgentReport,
  before: NodeRecord | undefined,
  held: ReadonlySet<string>,
  birth: { readonly revision: number; readonly now: number },
): NodeRecord {
  const reported = new Set(report.devices.map(({ uuid }) => uuid));
  const cordoned = new Set(before?.devices.filter(({ isCordoned }) => isCordoned).map(({ uuid }) => uuid));
  const present = report.devices.map((device) => ({ ...device, isCordoned: cordoned.has(device.uuid) }));
  // A device that is gone is kept for as long as somebody holds it.
  const missing = (before?.devices ?? [])
    .filter(({ uuid }) => held.has(uuid) && !reported.has(uuid))
    .map(
      (device): DeviceRecord => ({
        ...device,
        isHealthy: false,
        healthReason: "its agent no longer finds it",
      }),
    );
  return {
    name: report.node,
    agentUrl: report.agentUrl,
    agentVersion: report.agentVersion,
    hostname: report.hostname,
    bootId: report.bootId,
    isCordoned: before?.isCordoned ?? false,
    cordonReason: before?.cordonReason ?? "",
    labels: before?.labels ?? {},
    agentLabels: report.labels,
    revision: before?.revision ?? birth.revision,
    joinedAt: before?.joinedAt ?? birth.now,
    devices: [...present, ...missing].sort((a, b) => a.index - b.index || (a.uuid < b.uuid ? -1 : 1)),
  };
}

function isSame(node: NodeRecord, before: NodeRecord | undefined): boolean {
  return before !== undefined && isDeepStrictEqual(node, before);
}
