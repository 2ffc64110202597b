// SPDX-License-Identifier: Apache-2.0

import type { Labels } from "./labels.ts";
import { fits } from "./request.ts";
import { freeOf, type NodeState, type Snapshot } from "./snapshot.ts";

/** A vGPU on a device. */
export interface Placement {
  readonly uuid: string;
  readonly index: number;
  readonly memoryBytes: bigint;
  /** 1 to 100; 0 for best effort. */
  readonly computePercent: number;
}

/** A placement decision for one claim, which can be carried out and rolled back. */
export interface Statement {
  readonly claim: string;
  readonly node: string;
  /** On distinct devices, in order of their ordinals. */
  readonly devices: readonly Placement[];
  /** Labels of the claim. Absent: none. */
  readonly labels?: Labels;
}

/**
 * The snapshot with the statement carried out.
 *
 * @throws RangeError when the statement does not fit this snapshot because it was made from another one
 */
export function applyStatement(snapshot: Snapshot, statement: Statement): Snapshot {
  return withNode(snapshot, statement.node, (node) => {
    const placements = new Map(statement.devices.map((placement) => [placement.uuid, placement]));
    const devices = node.devices.map((device) => {
      const placement = placements.get(device.uuid);
      if (placement === undefined) {
        return device;
      }
      placements.delete(device.uuid);
      if (
        !fits(placement, freeOf(device)) ||
        device.grants.some((grant) => grant.claim === statement.claim)
      ) {
        throw new RangeError(`claim ${statement.claim} does not fit device ${node.name}/${device.index}`);
      }
      const { memoryBytes, computePercent } = placement;
      return {
        ...device,
        grants: [
          ...device.grants,
          {
            claim: statement.claim,
            memoryBytes,
            computePercent,
            ...(statement.labels === undefined ? {} : { labels: statement.labels }),
          },
        ],
      };
    });
    if (placements.size > 0) {
      throw new RangeError(`node ${node.name} has no device ${[...placements.keys()].join(", ")}`);
    }
    return { ...node, devices };
  });
}

/**
 * The snapshot without the placements of the statement.
 *
 * @throws RangeError when the statement has not been carried out on this snapshot
 */
export function rollbackStatement(snapshot: Snapshot, statement: Statement): Snapshot {
  return withNode(snapshot, statement.node, (node) => {
    const uuids = new Set(statement.devices.map(({ uuid }) => uuid));
    const devices = node.devices.map((device) => {
      if (!uuids.delete(device.uuid)) {
        return device;
      }
      const grants = device.grants.filter((grant) => grant.claim !== statement.claim);
      if (grants.length === device.grants.length) {
        throw new RangeError(`claim ${statement.claim} holds nothing of device ${node.name}/${device.index}`);
      }
      return { ...device, grants };
    });
    if (uuids.size > 0) {
      throw new RangeError(`node ${node.name} has no device ${[...uuids].join(", ")}`);
    }
    return { ...node, devices };
  });
}

function withNode(snapshot: Snapshot, name: string, change: (node: NodeState) => NodeState): Snapshot {
  const position = snapshot.nodes.findIndex((node) => node.name === name);
  const node = snapshot.nodes[position];
  if (node === undefined) {
    throw new RangeError(`the snapshot has no node ${name}`);
  }
  return { ...snapshot, nodes: snapshot.nodes.with(position, change(node)) };
}
