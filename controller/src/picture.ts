// SPDX-License-Identifier: Apache-2.0

// The pool as the scheduler sees it.

import {
  type DeviceState,
  type Grant,
  type Labels,
  type Leftover,
  learnWorkload,
  type NodeState,
  type Snapshot,
  type Statement,
  type Workload,
} from "@millpond/scheduler";
import type { Transaction } from "./ledger.ts";
import type { AllocationRecord, ClaimRecord, DeviceRecord, NodeRecord } from "./store/store.ts";

/**
 * Changes of nodes before the workload is learnt anew, at least; in a large pool a quarter of what is granted. Then every
 * node is looked at again for every claim, so it is not done for each change.
 */
const fewestChanges = 64;

interface KnownNode {
  /** Of what is on the node; -1: not known. */
  readonly version: number;
  /** The same as text, for what has no version yet. */
  readonly allocations: string;
  readonly state: NodeState;
}

/**
 * Makes snapshots. A node that nothing has happened to is the same value in the next snapshot, so that making one costs
 * what has changed, and whoever keeps something by node finds it again.
 */
export class Picture {
  readonly #known = new Map<NodeRecord, KnownNode>();
  #nodes: readonly NodeRecord[] = [];
  #workload: Workload | undefined;
  /** Nodes that have changed since the workload was learnt, each as often as it has. */
  #changes = 0;
  #changesToLearn = 0;

  snapshot(transaction: Transaction, isReady: (node: string) => boolean): Snapshot {
    const nodes = transaction.allNodes();
    if (
      nodes.length !== this.#nodes.length ||
      nodes.some((node, position) => node !== this.#nodes[position])
    ) {
      const current = new Set(nodes);
      for (const node of this.#nodes) {
        if (!current.has(node)) {
          this.#known.delete(node);
        }
      }
      this.#nodes = nodes;
    }
    const states = nodes.map((node) => this.#nodeState(transaction, node, isReady(node.name)));
    if (this.#changes >= Math.max(fewestChanges, this.#changesToLearn)) {
      this.#changes = 0;
      this.#workload = learnWorkload({ nodes: states });
      this.#changesToLearn = states.reduce((sum, { devices }) => sum + countGrants(devices), 0) / 4;
    }
    return { nodes: states, ...(this.#workload === undefined ? {} : { workload: this.#workload }) };
  }

  #nodeState(transaction: Transaction, node: NodeRecord, isReady: boolean): NodeState {
    const version = transaction.allocations.versionOf(node.name);
    const known = this.#known.get(node);
    if (known !== undefined && known.version === version && known.state.isReady === isReady) {
      return known.state;
    }
    const allocations = transaction.allocations.onNode(node.name);
    const key = allocations
      .map(({ epoch, releasedRevision }) => `${epoch}${releasedRevision === null ? "" : "r"}`)
      .join();
    if (known?.allocations === key && known.state.isReady === isReady) {
      this.#known.set(node, { ...known, version: version ?? -1 });
      return known.state;
    }
    const state = toNodeState(node, isReady, (uuid) =>
      allocations.flatMap((allocation) => toGrants(allocation, transaction.claim(allocation.claim), uuid)),
    );
    this.#known.set(node, { version: version ?? -1, allocations: key, state });
    this.#changes += 1;
    return state;
  }
}

/** Name of what a claim holds, in the grants of devices: that of the claim, until it was taken back. */
export function grantName({ claim, epoch, releasedRevision }: AllocationRecord): string {
  return releasedRevision === null ? claim : `${claim} (given back, epoch ${epoch})`;
}

const statements = new WeakMap<
  AllocationRecord,
  { readonly devices: NodeRecord["devices"] | undefined; readonly statement: Statement }
>();

/** What an allocation holds, as a statement: the same value for as long as its node has the same devices. */
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

/** What was taken back and may still be in use. */
export function toLeftover(
  allocation: AllocationRecord,
  node: NodeRecord | undefined,
  endsAt: number | null,
): Leftover {
  return { statement: toStatement(allocation, node), endsAt };
}

/** Labels of a node: those that operators gave it win. */
export function labelsOf({ labels, agentLabels }: NodeRecord): Labels {
  return { ...agentLabels, ...labels };
}

function toNodeState(
  node: NodeRecord,
  isReady: boolean,
  grantsOf: (uuid: string) => readonly Grant[],
): NodeState {
  return {
    name: node.name,
    isReady,
    isCordoned: node.isCordoned,
    labels: labelsOf(node),
    bootId: node.bootId,
    devices: node.devices.map((device) => toDeviceState(device, grantsOf(device.uuid))),
  };
}

function toDeviceState(device: DeviceRecord, grants: readonly Grant[]): DeviceState {
  const { uuid, index, memoryBytes, isHealthy, isCordoned, name, computeCapability } = device;
  const topology = topologyOf(device);
  return {
    uuid,
    index,
    memoryBytes,
    isHealthy,
    isCordoned,
    model: name,
    computeCapability,
    grants,
    ...topology,
  };
}

function toGrants(allocation: AllocationRecord, claim: ClaimRecord | undefined, uuid: string): Grant[] {
  return allocation.devices
    .filter((each) => each.uuid === uuid)
    .map(({ memoryBytes, computePercent }) => ({
      claim: grantName(allocation),
      memoryBytes,
      computePercent,
      ...(claim === undefined || Object.keys(claim.labels).length === 0 ? {} : { labels: claim.labels }),
    }));
}

function countGrants(devices: readonly DeviceState[]): number {
  return devices.reduce((sum, { grants }) => sum + grants.length, 0);
}

function topologyOf({ numaNode, pcieSwitch, nvlinkDomain }: DeviceRecord): Pick<DeviceState, "topology"> {
  const topology = {
    ...(numaNode === "" ? {} : { numaNode }),
    ...(pcieSwitch === "" ? {} : { pcieSwitch }),
    ...(nvlinkDomain === "" ? {} : { nvlinkDomain }),
  };
  return Object.keys(topology).length === 0 ? {} : { topology };
}
