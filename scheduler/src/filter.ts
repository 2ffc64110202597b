// SPDX-License-Identifier: Apache-2.0

import { allowsDevice, allowsNeighbours, allowsNode, allowsSharing } from "./constraints.ts";
import { capacityOf, type ClaimRequest, fits, type Share, shareOf } from "./request.ts";
import { type DeviceState, type Free, freeOf, type NodeState } from "./snapshot.ts";

/** A device that could take a vGPU of a request now. */
export interface Candidate {
  readonly device: DeviceState;
  readonly free: Free;
  readonly share: Share;
}

/** Whether the node accepts new claims at all. */
export function isOpen(node: NodeState): boolean {
  return node.isReady && !node.isCordoned;
}

/** Whether the device accepts new claims at all, if its node does. */
export function takesClaims(device: DeviceState): boolean {
  return device.isHealthy && device.isCordoned !== true;
}

/** The devices of a node that could each take a vGPU now; none if the node accepts no claims. */
export function candidatesOn(node: NodeState, request: ClaimRequest): Candidate[] {
  const candidates: Candidate[] = [];
  const { constraints } = request;
  if (!isOpen(node) || !allowsNode(constraints, node) || !allowsNeighbours(constraints, node)) {
    return candidates;
  }
  for (const device of node.devices) {
    const share = shareOf(request, device);
    const free = freeOf(device);
    if (
      takesClaims(device) &&
      fits(share, free) &&
      allowsDevice(constraints, device) &&
      allowsSharing(constraints, device)
    ) {
      candidates.push({ device, free, share });
    }
  }
  return candidates;
}

/** The devices of a node that could each take a vGPU if the node were empty, whatever its state. */
export function possibleOn(node: NodeState, request: ClaimRequest): DeviceState[] {
  const { constraints } = request;
  if (!allowsNode(constraints, node)) {
    return [];
  }
  return node.devices.filter(
    (device) => allowsDevice(constraints, device) && fits(shareOf(request, device), capacityOf(device)),
  );
}
