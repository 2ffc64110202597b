// SPDX-License-Identifier: Apache-2.0

// A change as rows: what stores write, and what followers read of the leader's changes.

import { writeQueueSpec, writeTenantSpec } from "./queue-spec.ts";
import {
  fromAllocation,
  fromAuditEntry,
  fromClaim,
  fromDevice,
  fromEvent,
  fromLogin,
  fromNode,
  fromRemovedNode,
  fromSigningKey,
  fromToken,
  fromUsage,
  fromVirtualGpus,
  type NewRow,
  type Row,
  text,
  toAllocations,
  toClaims,
  toDevices,
  toEvent,
  toLogin,
  toNode,
  toRemovedNode,
  toSigningKey,
  toQueue,
  toTenant,
  toToken,
} from "./rows.ts";
import type { StoreChanges } from "../state/store.ts";
import type { NodeRecord } from "../domain/records.ts";

/** New and changed rows by table, each table after those that its rows reference. */
interface WrittenRows<R> {
  readonly queues: readonly R[];
  readonly tenants: readonly R[];
  readonly nodes: readonly R[];
  readonly devices: readonly R[];
  readonly removed_nodes: readonly R[];
  readonly claims: readonly R[];
  readonly allocations: readonly R[];
  readonly virtual_gpus: readonly R[];
  readonly tokens: readonly R[];
  readonly signing_keys: readonly R[];
  readonly logins: readonly R[];
  readonly events: readonly R[];
  readonly audit: readonly R[];
  readonly usage: readonly R[];
}

export type TableName = keyof WrittenRows<unknown>;

/** Keys of removed rows, by table. */
export interface RemovedKeys {
  readonly allocations: readonly number[];
  readonly queues: readonly string[];
  readonly tenants: readonly string[];
  readonly tokens: readonly string[];
  readonly logins: readonly string[];
  readonly claims: readonly string[];
  readonly nodes: readonly string[];
}

/** The complete list of a node's devices. Rows of this list are among those written; other devices of the node are deleted. */
export interface DeviceList {
  readonly node: string;
  readonly uuids: readonly string[];
}

export interface ChangeRows<R = NewRow> {
  readonly revision: number;
  readonly epoch: number;
  readonly written: WrittenRows<R>;
  readonly removed: RemovedKeys;
  readonly deviceLists: readonly DeviceList[];
}

/** Devices by node, as a store has them: most changes of a node only change its revision. */
export type KnownDevices = Map<string, NodeRecord["devices"]>;

/** @param known Rows that need not be written again. */
export function toRows(changes: StoreChanges, known: KnownDevices): ChangeRows {
  const rewritten = changes.nodes.filter(({ name, devices }) => known.get(name) !== devices);
  return {
    revision: changes.revision,
    epoch: changes.epoch,
    written: {
      queues: changes.queues.map((queue) => ({ name: queue.name, spec: writeQueueSpec(queue) })),
      tenants: changes.tenants.map((tenant) => ({ name: tenant.name, spec: writeTenantSpec(tenant) })),
      nodes: changes.nodes.map(fromNode),
      devices: rewritten.flatMap(({ name, devices }) => devices.map((device) => fromDevice(name, device))),
      removed_nodes: changes.removedNodes.map(fromRemovedNode),
      claims: changes.claims.map(fromClaim),
      allocations: changes.allocations.map(fromAllocation),
      virtual_gpus: changes.allocations.flatMap(fromVirtualGpus),
      tokens: changes.tokens.map(fromToken),
      signing_keys: changes.signingKeys.map(fromSigningKey),
      logins: changes.logins.map(fromLogin),
      events: changes.events.map(fromEvent),
      audit: changes.audit.map(fromAuditEntry),
      usage: changes.usage.map(fromUsage),
    },
    removed: {
      allocations: changes.removedAllocations,
      queues: changes.removedQueues,
      tenants: changes.removedTenants,
      tokens: changes.removedTokens,
      logins: changes.removedLogins,
      claims: changes.forgottenClaims,
      nodes: changes.removedNodes.map(({ name }) => name),
    },
    deviceLists: rewritten.map(({ name, devices }) => ({
      node: name,
      uuids: devices.map(({ uuid }) => uuid),
    })),
  };
}

/** Records devices that have become durable. */
export function noteDevices(
  known: KnownDevices,
  { nodes, removedNodes }: Pick<StoreChanges, "nodes" | "removedNodes">,
): void {
  for (const { name } of removedNodes) {
    known.delete(name);
  }
  for (const { name, devices } of nodes) {
    known.set(name, devices);
  }
}

/**
 * The effect of a change on state in memory; the audit log and ended claims are not kept there.
 *
 * @param known The devices before the change.
 */
export function fromRows(rows: ChangeRows<Row>, known: KnownDevices): StoreChanges {
  const { written, removed } = rows;
  const devices = toDevices(written.devices);
  const rewritten = new Set(rows.deviceLists.map(({ node }) => node));
  const devicesOf = (node: string) => (rewritten.has(node) ? devices.get(node) : known.get(node)) ?? [];
  return {
    revision: rows.revision,
    epoch: rows.epoch,
    nodes: written.nodes.map((row) => toNode(row, devicesOf(text(row, "name")))),
    removedNodes: written.removed_nodes.map(toRemovedNode),
    claims: toClaims(written.claims),
    forgottenClaims: removed.claims,
    allocations: toAllocations(written.allocations, written.virtual_gpus),
    removedAllocations: removed.allocations,
    queues: written.queues.map(toQueue),
    removedQueues: removed.queues,
    tenants: written.tenants.map(toTenant),
    removedTenants: removed.tenants,
    tokens: written.tokens.map(toToken),
    removedTokens: removed.tokens,
    signingKeys: written.signing_keys.map(toSigningKey),
    logins: written.logins.map(toLogin),
    removedLogins: removed.logins,
    audit: [],
    usage: [],
    events: written.events.map(toEvent),
  };
}
