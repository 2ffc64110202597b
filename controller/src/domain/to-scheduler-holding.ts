// SPDX-License-Identifier: Apache-2.0

// Converts allocations to the scheduler's types.

import type { Labels, Leftover, Statement } from "@millpond/scheduler";
import type { AllocationRecord, NodeRecord } from "./records.ts";

/** Name of a claim's allocation in the grants of devices: the name of the claim, until it is released. */
export function grantName({ claim, epoch, releasedRevision }: AllocationRecord): string {
  return releasedRevision === null ? claim : `${claim} (released, epoch ${epoch})`;
}

const statements = new WeakMap<
  AllocationRecord,
  { readonly devices: NodeRecord["devices"] | undefined; readonly statement: Statement }
>();

/** An allocation as a statement: the same value as long as its node has the same devices. */
export function toStatement(allocation: AllocationRecord, node: NodeRecord | undefined): Statement {
  const known = statements.get(allocation);
  if (known !== undefined && known.devices === node?.devices) {
    return known.statement;
  }
  const statement = makeStatement(allocation, node);
  statements.set(allocation, { devices: node?.devices, statement });
  return statement;
}

function makeStatement(allocation: AllocationRecord, node: NodeRecord | undefined): Statement {
  const indexes = new Map(node?.devices.map(({ uuid, index }) => [uuid, index]));
  return {
    claim: grantName(allocation),
    node: allocation.node,
    devices: allocation.devices.map((device) => ({ ...device, index: indexes.get(device.uuid) ?? 0 })),
  };
}

/** A released allocation that may still be in use. */
export function toLeftover(
  allocation: AllocationRecord,
  node: NodeRecord | undefined,
  endsAt: number | null,
): Leftover {
  return { statement: toStatement(allocation, node), endsAt };
}

/** Labels of a node: those of operators take precedence. */
export function labelsOf({ labels, agentLabels }: NodeRecord): Labels {
  return { ...agentLabels, ...labels };
}
