// SPDX-License-Identifier: Apache-2.0

// The pool as the controller's API shows it, in the form that the scheduler and the simulator read.

import {
  type Claim,
  ClaimState,
  type Device,
  DeviceHealth,
  Locality,
  type Node,
  NodeState,
  Placement,
  ServiceClass,
} from "@millpond/api";
import type {
  ClaimRequest,
  DeviceState,
  Grant,
  PlacementPolicy,
  Snapshot,
  Topology,
} from "@millpond/scheduler";
import type { ExportedClaim, PoolExport } from "@millpond/simulator";
import type { Connection } from "../connection/connection.ts";

const MiB = 1n << 20n;

/** Label of nodes that a claim's `pool` selects. */
const poolLabel = "pool";

export interface PoolPicture {
  readonly nodes: readonly Node[];
  /** Claims that have not ended, in order of creation. */
  readonly claims: readonly Claim[];
}

export async function readPool({ pool, claims }: Connection): Promise<PoolPicture> {
  const [{ nodes }, list] = await Promise.all([pool.listNodes({}), claims.listClaims({})]);
  return { nodes, claims: list.claims.filter(({ endedAt }) => endedAt === 0n) };
}

/** The pool as the scheduler sees it. */
export function toSnapshot({ nodes, claims }: PoolPicture): Snapshot {
  return {
    nodes: nodes.map((node) => ({
      name: node.name,
      isReady: node.state === NodeState.READY,
      isCordoned: node.cordoned,
      labels: node.labels,
      bootId: node.bootId,
      devices: node.devices.map((device): DeviceState => {
        const { uuid, index, memoryBytes, name, computeCapability, cordoned, health } = device;
        const grants = claims.flatMap((claim) => grantsOf(claim, node.name, uuid));
        const known = grants.reduce((sum, grant) => sum + grant.memoryBytes, 0n);
        const knownCompute = grants.reduce((sum, grant) => sum + grant.computePercent, 0);
        // Memory of a released claim that may still be in use belongs to no claim.
        const leftover: Grant[] =
          device.allocatedMemoryBytes > known
            ? [
                {
                  claim: "(released)",
                  memoryBytes: device.allocatedMemoryBytes - known,
                  computePercent: Math.max(1, device.allocatedComputePercent - knownCompute),
                },
              ]
            : [];
        return {
          uuid,
          index,
          memoryBytes,
          ...(device.overheadBytes === 0n ? {} : { overheadBytes: device.overheadBytes }),
          model: name,
          computeCapability,
          isCordoned: cordoned,
          ...topologyOf(device),
          isHealthy: health === DeviceHealth.HEALTHY,
          grants: [...grants, ...leftover],
        };
      }),
    })),
  };
}

/** The requests of the bound claims, by name. A gang on one node stays there. */
export function boundRequests({ claims }: PoolPicture): Map<string, ClaimRequest> {
  return new Map(
    claims
      .filter(({ state, preemptAt }) => state === ClaimState.BOUND && preemptAt === 0n)
      .map((claim) => {
        const { constraints, ...request } = toRequest(claim);
        const node = claim.gang !== "" && claim.sameNode ? claim.allocation?.node : undefined;
        const bounds = node === undefined ? constraints : { ...constraints, onlyNodes: [node] };
        return [claim.name, { ...request, constraints: bounds }];
      }),
  );
}

/** The pool as a file that the simulator replays. */
export function toExport({ nodes, claims }: PoolPicture, takenAt: Date): PoolExport {
  return {
    format: "millpond-pool",
    version: 1,
    takenAt: takenAt.toISOString(),
    nodes: nodes.map(({ name, devices }) => ({
      name,
      devices: devices.map((device) => ({
        model: device.name,
        memoryMiB: Number(device.memoryBytes / MiB),
      })),
    })),
    claims: claims.map(
      ({ name, gpus, memoryBytes, memoryPercent, computePercent, models }): ExportedClaim => ({
        name,
        gpus,
        memoryMiB: Number((memoryBytes + MiB - 1n) / MiB),
        memoryPercent,
        computePercent,
        ...(models.length === 0 ? {} : { models }),
      }),
    ),
  };
}

function grantsOf({ name, labels, allocation }: Claim, node: string, device: string): Grant[] {
  return allocation?.node === node
    ? allocation.devices
        .filter(({ uuid }) => uuid === device)
        .map(({ memoryBytes, computePercent }) => ({ claim: name, memoryBytes, computePercent, labels }))
    : [];
}

function topologyOf({ numaNode, pcieSwitch, nvlinkDomain }: Device): Pick<DeviceState, "topology"> {
  const topology: Topology = {
    ...(numaNode === "" ? {} : { numaNode }),
    ...(pcieSwitch === "" ? {} : { pcieSwitch }),
    ...(nvlinkDomain === "" ? {} : { nvlinkDomain }),
  };
  return Object.keys(topology).length === 0 ? {} : { topology };
}

function toRequest(claim: Claim) {
  const { models, minComputeCapability, affinity, antiAffinity, pool, exclusive } = claim;
  const nodeLabels = pool === "" ? claim.nodeLabels : { ...claim.nodeLabels, [poolLabel]: pool };
  const isLocalOnly = claim.locality === Locality.LOCAL_ONLY;
  return {
    claim: claim.name,
    gpus: claim.gpus,
    memoryBytes: claim.memoryBytes,
    memoryPercent: claim.memoryPercent,
    computePercent: exclusive ? 100 : claim.computePercent,
    ...(claim.serviceClass === ServiceClass.BEST_EFFORT ? { isBestEffort: true } : {}),
    policy: policyOf(claim.placement),
    labels: claim.labels,
    constraints: {
      ...(models.length === 0 ? {} : { models }),
      ...(minComputeCapability === "" ? {} : { minComputeCapability }),
      ...(Object.keys(nodeLabels).length === 0 ? {} : { nodeLabels }),
      ...(Object.keys(affinity).length === 0 ? {} : { affinity }),
      ...(Object.keys(antiAffinity).length === 0 ? {} : { antiAffinity }),
      ...(isLocalOnly ? { onlyHost: claim.clientHost } : {}),
      ...(exclusive ? { isExclusive: true } : {}),
    },
  } satisfies ClaimRequest;
}

function policyOf(placement: Placement): PlacementPolicy {
  switch (placement) {
    case Placement.BINPACK:
      return "binpack";
    case Placement.SPREAD:
      return "spread";
    default:
      return "least-fragmentation";
  }
}
