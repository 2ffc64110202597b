// SPDX-License-Identifier: Apache-2.0

// The pool as the scheduler sees it.

import {
  type DeviceState,
  differenceOf,
  type Grant,
  type Labels,
  type Leftover,
  learnWorkload,
  type NodeState,
  type Snapshot,
  type Statement,
  type Workload,
} from "@millpond/scheduler";
import type { Transaction } from "./transaction.ts";
import type { AllocationRecord, ClaimRecord, DeviceRecord, NodeRecord } from "./store/store.ts";

/**
 * Changes of nodes before the workload is learnt anew, at least; in a large pool a quarter of what is granted. Then every
 * node is looked at again for every claim, so it is not done for each change.
 */
const fewestChanges = 64;

/** A workload that differs by no more is the same: with another one every node is scored again, which takes a while. */
const littleDifference = 0.05;

interface KnownNode {
  readonly node: NodeRecord;
  /** Of what is on the node, as it is durable; -1: it is not. */
  readonly version: number;
  readonly allocations: readonly AllocationRecord[];
  readonly state: NodeState;
}

/**
 * Makes snapshots. A node that nothing has happened to is the same value in the next snapshot, so that making one costs
 * what has changed, and whoever keeps something by node finds it again.
 */
export class Picture {
  /** By position, as the nodes were in the last snapshot. */
  #known: readonly KnownNode[] = [];
  #workload: Workload | undefined;
  /** Nodes that have changed since the workload was learnt, each as often as it has. */
  #changes = 0;
  #changesToLearn = 0;

  snapshot(transaction: Transaction, isReady: (node: string) => boolean): Snapshot {
    const changed = transaction.allocations.changedNodes();
    let byName: ReadonlyMap<string, KnownNode> | undefined;
    const find = (name: string) => {
      byName ??= new Map(this.#known.map((known) => [known.node.name, known]));
      return byName.get(name);
    };
    const all: KnownNode[] = [];
    const states: NodeState[] = [];
    for (const node of transaction.allNodes()) {
      const there = this.#known[all.length];
      const known = there?.node.name === node.name ? there : find(node.name);
      const version = changed.has(node.name) ? -1 : transaction.allocations.versionOf(node.name);
      const look = this.#look(transaction, { node, known, version, isReady: isReady(node.name) });
      all.push(look);
      states.push(look.state);
    }
    this.#known = all;
    if (this.#changes >= Math.max(fewestChanges, this.#changesToLearn)) {
      this.#changes = 0;
      const workload = learnWorkload({ nodes: states });
      if (this.#workload === undefined || differenceOf(workload, this.#workload) > littleDifference) {
        this.#workload = workload;
      }
      this.#changesToLearn = states.reduce((sum, { devices }) => sum + countGrants(devices), 0) / 4;
    }
    return { nodes: states, ...(this.#workload === undefined ? {} : { workload: this.#workload }) };
  }

  #look(
    transaction: Transaction,
    {
      node,
      known,
      version,
      isReady,
    }: {
      readonly node: NodeRecord;
      readonly known: KnownNode | undefined;
      readonly version: number;
      readonly isReady: boolean;
    },
  ): KnownNode {
    const isKnown = known !== undefined && known.state.isReady === isReady && looksSame(known.node, node);
    if (isKnown && known.version === version && version >= 0) {
      return known.node === node ? known : { ...known, node };
    }
    const allocations = transaction.allocations.onNode(node.name);
    if (isKnown && isSameList(known.allocations, allocations)) {
      return { ...known, node, version };
    }
    const state = toNodeState(node, isReady, (uuid) =>
      allocations.flatMap((allocation) => toGrants(allocation, transaction.claim(allocation.claim), uuid)),
    );
    this.#changes += 1;
    return { node, version, allocations, state };
  }
}

/** Whether two records of a node give the same picture of it: the same values, but for when it was stamped. */
function looksSame(a: NodeRecord, b: NodeRecord): boolean {
  return (
    a === b ||
    (a.devices === b.devices &&
      a.isCordoned === b.isCordoned &&
      a.labels === b.labels &&
      a.agentLabels === b.agentLabels &&
      a.bootId === b.bootId)
  );
}

function isSameList<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((each, position) => each === b[position]);
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
