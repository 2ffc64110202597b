// SPDX-License-Identifier: Apache-2.0

// What operators do with nodes.

import { checkLabels, formatLabels, millpondError, quote } from "@millpond/api";
import { nodeNotFound } from "./agents.ts";
import { giveNotice } from "./endings.ts";
import type { Transaction } from "./transaction.ts";
import { labelsOf } from "./picture.ts";
import type { Pool } from "./pool.ts";
import type { NodeRecord } from "./store/store.ts";

export interface Cordon {
  readonly isCordoned: boolean;
  /** Only this device; empty: the whole node. */
  readonly uuid: string;
  /** For people; may be empty. */
  readonly reason: string;
}

/**
 * Keeps new claims off a node or a device, or lets them come again.
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
        const why = `node ${name} is drained${reason === "" ? "" : `: ${reason}`}`;
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

/** @throws MILLPOND_E_NOT_FOUND, MILLPOND_E_INVALID */
export async function labelNode(
  pool: Pool,
  name: string,
  change: { readonly set: Readonly<Record<string, string>>; readonly remove: readonly string[] },
): Promise<void> {
  await pool.mutate((transaction) => {
    const node = requireNode(transaction, name);
    const kept = Object.entries(node.labels).filter(([key]) => !change.remove.includes(key));
    const labels = checkLabels({ ...Object.fromEntries(kept), ...checkLabels(change.set) });
    const changed = { ...node, labels };
    if (formatLabels(labels) !== formatLabels(node.labels)) {
      transaction.putNode(changed);
      transaction.addEvent("NodeLabelled", `node/${name}`, formatLabels(labelsOf(changed)) || "no labels");
    }
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
  transaction.putNode({ ...node, isCordoned, cordonReason });
  transaction.addEvent(
    isCordoned ? "NodeCordoned" : "NodeUncordoned",
    `node/${node.name}`,
    isCordoned ? `takes no new claims${reason === "" ? "" : `: ${reason}`}` : "takes new claims again",
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
  if (device.isCordoned === isCordoned) {
    return;
  }
  const devices = node.devices.map((each) => (each === device ? { ...each, isCordoned } : each));
  transaction.putNode({ ...node, devices });
  transaction.addEvent(
    isCordoned ? "DeviceCordoned" : "DeviceUncordoned",
    `device/${node.name}/${device.index}`,
    isCordoned ? `takes no new claims${reason === "" ? "" : `: ${reason}`}` : "takes new claims again",
  );
}

function requireNode(transaction: Transaction, name: string): NodeRecord {
  const node = transaction.node(name);
  if (node === undefined) {
    throw nodeNotFound(name);
  }
  return node;
}
