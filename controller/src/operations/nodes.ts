// SPDX-License-Identifier: Apache-2.0

// Operators' operations on nodes.

import {
  checkLabels,
  countOf,
  formatLabels,
  millpondError,
  quote,
  type Reason,
  reason as makeReason,
} from "@millpond/api";
import { nodeNotFound } from "./agent-sync.ts";
import { endClaim, giveNotice, nodeLossAfterSeconds, requeueClaim } from "../reconcile/claim-lifecycle.ts";
import type { Transaction } from "../state/transaction.ts";
import { silentSeconds } from "../domain/observed-state.ts";
import { labelsOf } from "../domain/to-scheduler-holding.ts";
import type { AllocationRecord, NodeRecord } from "../domain/records.ts";
import type { Pool } from "../pool/pool.ts";

/** Agents receive changes within 2 s. */
const hearingMs = 5_000;

export interface Cordon {
  readonly isCordoned: boolean;
  /** Only this device; empty: the whole node. */
  readonly uuid: string;
  /** For display; may be empty. */
  readonly reason: string;
}

/**
 * Cordons a node or a device, or uncordons it.
 *
 * @throws MILLPOND_E_NOT_FOUND
 */
export async function cordonNode(pool: Pool, name: string, cordon: Cordon): Promise<void> {
  await pool.mutate((transaction) => {
    const node = requireNode(transaction, name);
    if (cordon.uuid === "") {
      cordonWhole(transaction, node, cordon);
    } else {
      cordonDevice(transaction, node, cordon);
    }
  });
  if (!cordon.isCordoned && cordon.uuid !== "") {
    await clearFault(pool, name, cordon.uuid);
  }
}

/** Sends the agent the news that a device is healthy again, and waits until the agent has confirmed it. */
async function clearFault(pool: Pool, name: string, uuid: string): Promise<void> {
  const fault = pool.liveness.faultOf(name, uuid);
  pool.liveness.clearFault(name, uuid);
  const endMs = pool.clock.monotonicMs() + hearingMs;
  while (fault !== 0 && pool.liveness.faultOf(name, uuid) === fault && pool.clock.monotonicMs() < endMs) {
    await pool.nodeWatchers.wait(name, endMs - pool.clock.monotonicMs());
  }
}

/**
 * Cordons a node and gives notice to its claims.
 *
 * @returns Their names.
 * @throws MILLPOND_E_NOT_FOUND
 */
export async function drainNode(pool: Pool, name: string, reason: string): Promise<string[]> {
  return await pool.mutate((transaction) => {
    cordonWhole(transaction, requireNode(transaction, name), { isCordoned: true, reason });
    const drained: string[] = [];
    for (const { claim, releasedRevision } of transaction.allocations.onNode(name)) {
      const record = transaction.claim(claim);
      if (record !== undefined && releasedRevision === null) {
        const why = makeReason("node-drained", { node: name, note: reason === "" ? undefined : reason });
        giveNotice(transaction, record, {
          at: transaction.now + record.graceSeconds,
          reason: why,
          isFinal: false,
        });
        drained.push(claim);
      }
    }
    return drained.sort();
  });
}

/**
 * Removes a node from the pool permanently. Does nothing if it was removed already.
 *
 * @param options.isLost The host is gone, with all that ran there. Where it is not, nothing is granted twice either: its
 *   devices leave the pool with it, and it joins again only when no session is left on it.
 * @returns The names of the claims that were still bound there: they have ended, or wait again.
 * @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_IN_USE
 */
export async function removeNode(
  pool: Pool,
  name: string,
  { isLost }: { readonly isLost: boolean },
): Promise<string[]> {
  return await pool.mutate((transaction) => {
    if (transaction.nodes.get(name) === undefined && transaction.removedNodes.get(name) !== undefined) {
      return [];
    }
    const node = requireNode(transaction, name);
    const held = transaction.allocations.onNode(name);
    if (isLost) {
      refuseHeard(pool, name);
    } else {
      refuseUsed(pool, name, held);
    }
    const claims = takeClaims(transaction, pool, held, makeReason("node-removed", { node: name }));
    for (const allocation of transaction.allocations.onNode(name)) {
      transaction.removeAllocation(allocation);
    }
    transaction.removeNode(node);
    transaction.addEvent("NodeRemoved", `node/${name}`, makeReason("removed-from-pool"));
    return claims.sort();
  });
}

/** An allocation whose end cannot be confirmed is written off only after the agent's silence has made the node lost. */
function refuseHeard(pool: Pool, name: string): void {
  if (silentSeconds(pool.observe(), name) < nodeLossAfterSeconds) {
    throw millpondError(
      "MILLPOND_E_IN_USE",
      `node ${name} is not lost: its agent ${lastWord(pool, name)}, and a node is lost after ${nodeLossAfterSeconds} s`,
      { remedy: "Try again then; if the host still exists, drain it and stop its agent instead." },
    );
  }
}

function refuseUsed(pool: Pool, name: string, held: readonly AllocationRecord[]): void {
  const mayBeThere = pool.liveness.mayBeThere(name);
  if (held.length === 0 && !mayBeThere) {
    return;
  }
  const bound = held.filter(({ releasedRevision }) => releasedRevision === null).length;
  const left = held.length - bound;
  const what = [
    ...(bound === 0 ? [] : [countOf(bound, "claim")]),
    ...(left === 0 ? [] : [`the allocations of ${countOf(left, "ended claim")} that may still be in use`]),
  ];
  const holds = what.length === 0 ? "holds nothing, but" : `holds ${what.join(" and ")}, and`;
  throw millpondError("MILLPOND_E_IN_USE", `node ${name} ${holds} its agent ${lastWord(pool, name)}`, {
    remedy: remedyOf(name, { isUsed: held.length > 0, mayBeThere }),
  });
}

function remedyOf(
  name: string,
  { isUsed, mayBeThere }: { readonly isUsed: boolean; readonly mayBeThere: boolean },
): string {
  if (!isUsed) {
    return "Stop the agent and try again.";
  }
  return mayBeThere
    ? `Run \`millpond drain ${name} --wait\`, stop the agent and try again.`
    : `Start the agent and run \`millpond drain ${name} --wait\`; of a host that is gone for good: \`--lost\`.`;
}

function lastWord(pool: Pool, name: string): string {
  const seconds = Math.floor(silentSeconds(pool.observe(), name));
  return pool.liveness.of(name) === undefined
    ? `has not called since this controller began to lead ${seconds} s ago`
    : `called ${seconds} s ago`;
}

/** @returns The names of those that were bound. */
function takeClaims(
  transaction: Transaction,
  pool: Pool,
  held: readonly AllocationRecord[],
  reason: Reason,
): string[] {
  const bound = held.filter(({ releasedRevision }) => releasedRevision === null);
  const claims = bound.map(({ claim }) => transaction.claim(claim)).filter((claim) => claim !== undefined);
  for (const claim of claims) {
    if (claim.nodeLoss === "requeue") {
      requeueClaim(transaction, pool.observe(), claim, reason);
    } else {
      endClaim(transaction, pool.observe(), claim, { state: "failed", reason });
    }
  }
  return claims.map(({ name }) => name);
}

/** @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_INVALID */
export async function labelNode(
  pool: Pool,
  name: string,
  change: { readonly set: Readonly<Record<string, string>>; readonly remove: readonly string[] },
): Promise<void> {
  await pool.mutate((transaction) => {
    const node = requireNode(transaction, name);
    for (const key of change.remove) {
      refuseMissingLabel(node, key);
    }
    const kept = Object.entries(node.labels).filter(([key]) => !change.remove.includes(key));
    const labels = checkLabels({ ...Object.fromEntries(kept), ...checkLabels(change.set) });
    const changed = { ...node, labels };
    if (formatLabels(labels) !== formatLabels(node.labels)) {
      transaction.nodes.put(changed);
      transaction.addEvent(
        "NodeLabelled",
        `node/${name}`,
        makeReason("labelled", { labels: labelsOf(changed) }),
      );
    }
  });
}

/** @throws MILLPOND_E_NOT_FOUND; MILLPOND_E_INVALID for a label that is its agent's alone */
function refuseMissingLabel(node: NodeRecord, key: string): void {
  if (node.labels[key] !== undefined) {
    return;
  }
  if (node.agentLabels[key] !== undefined) {
    throw millpondError("MILLPOND_E_INVALID", `the label ${key} of node ${node.name} is set by its agent`, {
      remedy: `Give it another value with \`--set ${key}=…\`, or remove it from the agent's options.`,
    });
  }
  throw millpondError("MILLPOND_E_NOT_FOUND", `node ${node.name} has no label ${quote(key)}`, {
    remedy: "See its labels with `millpond describe node`.",
  });
}

function cordonWhole(
  transaction: Transaction,
  node: NodeRecord,
  { isCordoned, reason }: Pick<Cordon, "isCordoned" | "reason">,
): void {
  const cordonReason = isCordoned ? reason : "";
  if (node.isCordoned === isCordoned && node.cordonReason === cordonReason) {
    return;
  }
  transaction.nodes.put({ ...node, isCordoned, cordonReason });
  transaction.addEvent(
    isCordoned ? "NodeCordoned" : "NodeUncordoned",
    `node/${node.name}`,
    isCordoned
      ? makeReason("cordoned", { note: reason === "" ? undefined : reason })
      : makeReason("uncordoned"),
  );
}

function cordonDevice(
  transaction: Transaction,
  node: NodeRecord,
  { isCordoned, uuid, reason }: Cordon,
): void {
  const device = node.devices.find((each) => each.uuid === uuid);
  if (device === undefined) {
    throw millpondError("MILLPOND_E_NOT_FOUND", `node ${node.name} has no device ${quote(uuid)}`, {
      remedy: "List them with `millpond get devices -o wide`.",
    });
  }
  const cordonReason = isCordoned ? reason : "";
  if (device.isCordoned === isCordoned && device.cordonReason === cordonReason) {
    return;
  }
  const devices = node.devices.map((each) =>
    each === device ? { ...each, isCordoned, cordonReason } : each,
  );
  transaction.nodes.put({ ...node, devices });
  transaction.addEvent(
    isCordoned ? "DeviceCordoned" : "DeviceUncordoned",
    `device/${node.name}/${device.index}`,
    isCordoned
      ? makeReason("cordoned", { note: reason === "" ? undefined : reason })
      : makeReason("uncordoned"),
  );
}

function requireNode(transaction: Transaction, name: string): NodeRecord {
  const node = transaction.nodes.get(name);
  if (node === undefined) {
    throw nodeNotFound(name);
  }
  return node;
}
