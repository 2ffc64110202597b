// SPDX-License-Identifier: Apache-2.0

// The pool in the scheduler's types.

import {
  type DeviceState,
  differenceOf,
  type Grant,
  learnWorkload,
  type NodeState,
  type Snapshot,
  type Workload,
} from "@millpond/scheduler";
import { grantName, labelsOf } from "../domain/to-scheduler-holding.ts";
import type { Transaction } from "../state/transaction.ts";
import type { AllocationRecord, ClaimRecord, DeviceRecord, NodeRecord } from "../domain/records.ts";

/**
 * Minimum number of node changes before the workload is recomputed; in a large pool a quarter of the grants. That
 * rescores every node for every claim, so it is not done for each change.
 */
const fewestChanges = 64;

/** A workload that differs by at most this much is kept: a new one would rescore every node, which is slow. */
const littleDifference = 0.05;

interface KnownNode {
  readonly node: NodeRecord;
  /** Version of the node's durable allocations; -1: there are pending changes. */
  readonly version: number;
  readonly allocations: readonly AllocationRecord[];
  readonly state: NodeState;
}

/**
 * Creates snapshots. An unchanged node is the same object in the next snapshot, so that the cost is proportional to the
 * changes, and caches by node stay valid.
 */
export class SnapshotCache {
  /** By position in the last snapshot. */
  #known: readonly KnownNode[] = [];
  #workload: Workload | undefined;
  /** Number of node changes since the workload was computed. */
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
    for (const node of transaction.nodes.all()) {
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

/** Whether two records of a node are equal for the scheduler: the same values, apart from revisions. */
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
  const { uuid, index, memoryBytes, overheadBytes, isHealthy, isCordoned, name, computeCapability } = device;
  const topology = topologyOf(device);
  return {
    uuid,
    index,
    memoryBytes,
    ...(overheadBytes === 0n ? {} : { overheadBytes }),
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
