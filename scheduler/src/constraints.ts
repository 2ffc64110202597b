// SPDX-License-Identifier: Apache-2.0

// Where a claim may go at all, whatever is free there. What is only preferred is not here.

import type { DeviceState, NodeState } from "./snapshot.ts";

/** Labels by key. */
export type Labels = Readonly<Record<string, string>>;

/** How a claim wants its vGPUs to lie; see the field `placement` of a claim. */
export type PlacementPolicy = "least-fragmentation" | "binpack" | "spread";

/** Every member narrows the choice; an absent one does not. */
export interface Constraints {
  /** Parts of model names, case does not matter: a device fits when its name contains one of them. */
  readonly models?: readonly string[];
  /** Names of models: a device fits when it is one of these. */
  readonly onlyModels?: readonly string[];
  /** Least compute capability, `major.minor`. */
  readonly minComputeCapability?: string;
  /** Labels that the node must have, with these values. */
  readonly nodeLabels?: Labels;
  /** The only nodes that will do. */
  readonly onlyNodes?: readonly string[];
  /** Nodes that will not do. */
  readonly notNodes?: readonly string[];
  /** Only nodes that hold a claim with each of these labels; where no node does, any: somebody must be the first. */
  readonly affinity?: Labels;
  /** Only nodes that hold no claim with one of these labels. */
  readonly antiAffinity?: Labels;
  /** Only the node on the machine with this boot id. */
  readonly onlyHost?: string;
  /** The devices must be taken by nobody, and stay so. */
  readonly isExclusive?: boolean;
}

/** Whether the constraints depend on who is where, not only on what the pool consists of. */
export function dependsOnClaims(constraints: Constraints | undefined): boolean {
  return constraints?.affinity !== undefined || constraints?.antiAffinity !== undefined;
}

/** Whether the node would do if nobody were in the pool. */
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

/** Whether the claims that are on the node allow another with these constraints. */
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

/** The nodes that are not kept for claims that want none with such labels beside them. */
export function nodesForLabels(
  nodes: readonly NodeState[],
  labels: Labels | undefined,
): readonly NodeState[] {
  return labels === undefined || nodes.every(({ repelled }) => repelled === undefined)
    ? nodes
    : nodes.filter(({ repelled }) => repelled?.some((unwanted) => hasOneOf(labels, unwanted)) !== true);
}

/** The constraints as they are on this snapshot: an affinity that nobody could satisfy yet falls away. */
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

/** Whether the device would do if nobody were on it. */
export function allowsDevice(constraints: Constraints | undefined, device: DeviceState): boolean {
  if (constraints === undefined) {
    return true;
  }
  const { models, onlyModels, minComputeCapability } = constraints;
  return (
    (onlyModels === undefined || onlyModels.includes(device.model ?? "")) &&
    (models === undefined || models.some((model) => isModel(device.model ?? "", model))) &&
    (minComputeCapability === undefined ||
      compareCapabilities(device.computeCapability ?? "0.0", minComputeCapability) >= 0)
  );
}

/** Whether those who are on the device allow a claim with these constraints beside them. */
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
