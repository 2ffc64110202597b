// SPDX-License-Identifier: Apache-2.0

// Hard constraints: where a claim may go, regardless of free capacity. Preferences are scored elsewhere.

import type { Labels } from "./labels.ts";
import type { DeviceState, NodeState } from "./snapshot.ts";

/** How the vGPUs of a claim are placed; see the field `placement` of a claim. */
export type PlacementPolicy = "least-fragmentation" | "binpack" | "spread";

/** Each member narrows the choice; an absent member does not. */
export interface Constraints {
  /** Substrings of model names, compared without case: a device fits when its name contains one of them. */
  readonly models?: readonly string[];
  /** Names of models: a device fits when its model is one of these. */
  readonly onlyModels?: readonly string[];
  /** UUIDs of the only acceptable devices. */
  readonly onlyDevices?: readonly string[];
  /** Minimum compute capability, `major.minor`. */
  readonly minComputeCapability?: string;
  /** Labels that the node must have, with these values. */
  readonly nodeLabels?: Labels;
  /** Names of the only acceptable nodes. */
  readonly onlyNodes?: readonly string[];
  /** Names of nodes to avoid. */
  readonly notNodes?: readonly string[];
  /**
   * Only nodes that hold a claim with each of these labels. If no node does, any node: the first claim must start somewhere.
   */
  readonly affinity?: Labels;
  /** Only nodes that hold no claim with one of these labels. */
  readonly antiAffinity?: Labels;
  /** Only the node on the host with this boot id. */
  readonly onlyHost?: string;
  /** The devices must be free of other claims, and stay so. */
  readonly isExclusive?: boolean;
}

/** Whether the constraints depend on the claims in the pool, not only on its nodes and devices. */
export function dependsOnClaims(constraints: Constraints | undefined): boolean {
  return constraints?.affinity !== undefined || constraints?.antiAffinity !== undefined;
}

/** Whether the node meets the constraints, other claims aside. */
export function allowsNode(constraints: Constraints | undefined, node: NodeState): boolean {
  if (constraints === undefined) {
    return true;
  }
  const { nodeLabels, onlyNodes, notNodes, onlyHost } = constraints;
  return (
    (onlyNodes === undefined || onlyNodes.includes(node.name)) &&
    (notNodes === undefined || !notNodes.includes(node.name)) &&
    (onlyHost === undefined || node.bootId === onlyHost) &&
    (nodeLabels === undefined || hasLabels(node.labels, nodeLabels))
  );
}

/** Whether the claims on the node allow another one with these constraints. */
export function allowsNeighbours(constraints: Constraints | undefined, node: NodeState): boolean {
  if (constraints === undefined || !dependsOnClaims(constraints)) {
    return true;
  }
  const { affinity, antiAffinity } = constraints;
  const isNear = affinity === undefined || claimsOn(node).some((labels) => hasLabels(labels, affinity));
  const isApart =
    antiAffinity === undefined || !claimsOn(node).some((labels) => hasOneOf(labels, antiAffinity));
  return isNear && isApart;
}

/** The nodes that are not reserved for claims with an anti-affinity to these labels. */
export function nodesForLabels(
  nodes: readonly NodeState[],
  labels: Labels | undefined,
): readonly NodeState[] {
  return labels === undefined || nodes.every(({ repelled }) => repelled === undefined)
    ? nodes
    : nodes.filter(({ repelled }) => repelled?.some((unwanted) => hasOneOf(labels, unwanted)) !== true);
}

/** The constraints for this snapshot: an affinity that no node can satisfy yet is dropped. */
export function settleAffinity(
  constraints: Constraints | undefined,
  nodes: readonly NodeState[],
): Constraints | undefined {
  const affinity = constraints?.affinity;
  if (constraints === undefined || affinity === undefined) {
    return constraints;
  }
  if (nodes.some((node) => claimsOn(node).some((labels) => hasLabels(labels, affinity)))) {
    return constraints;
  }
  const { affinity: _nobody, ...rest } = constraints;
  return rest;
}

/** Whether the device meets the constraints, other claims aside. */
export function allowsDevice(constraints: Constraints | undefined, device: DeviceState): boolean {
  if (constraints === undefined) {
    return true;
  }
  const { models, onlyModels, onlyDevices, minComputeCapability } = constraints;
  return (
    (onlyDevices === undefined || onlyDevices.includes(device.uuid)) &&
    (onlyModels === undefined || onlyModels.includes(device.model ?? "")) &&
    (models === undefined || models.some((model) => isModel(device.model ?? "", model))) &&
    (minComputeCapability === undefined ||
      compareCapabilities(device.computeCapability ?? "0.0", minComputeCapability) >= 0)
  );
}

/** Whether the claims on the device allow one with these constraints beside them. */
export function allowsSharing(constraints: Constraints | undefined, device: DeviceState): boolean {
  return device.grants.length === 0 || constraints?.isExclusive !== true;
}

function claimsOn(node: NodeState): Labels[] {
  return node.devices.flatMap((device) =>
    device.grants.flatMap(({ labels }) => (labels === undefined ? [] : [labels])),
  );
}

function hasOneOf(labels: Labels, unwanted: Labels): boolean {
  return Object.entries(unwanted).some(([key, value]) => labels[key] === value);
}

function hasLabels(labels: Labels | undefined, wanted: Labels): boolean {
  return Object.entries(wanted).every(([key, value]) => labels?.[key] === value);
}

function isModel(name: string, part: string): boolean {
  return name.toLowerCase().includes(part.toLowerCase());
}

function compareCapabilities(a: string, b: string): number {
  const [majorA = 0, minorA = 0] = a.split(".").map(Number);
  const [majorB = 0, minorB = 0] = b.split(".").map(Number);
  return majorA - majorB || minorA - minorB;
}
