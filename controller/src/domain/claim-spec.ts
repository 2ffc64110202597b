// SPDX-License-Identifier: Apache-2.0

import type { ServiceClassWord } from "@millpond/api";
import type { Labels, PlacementPolicy } from "@millpond/scheduler";

export type LocalityPolicy = "prefer-local" | "local-only" | "any";
export type NodeLossPolicy = "keep" | "requeue" | "fail";

/** The validated spec of a claim, with defaults filled in. Members have the meaning of the fields in the API's Claim. */
export interface ClaimSpec {
  /** Empty: the controller generates one. */
  readonly name: string;
  readonly gpus: number;
  readonly memoryBytes: bigint;
  readonly memoryPercent: number;
  readonly computePercent: number;
  readonly owner: string;
  readonly leaseSeconds: number;
  readonly isSessionBound: boolean;
  readonly isLazy: boolean;
  /** 0 where it is not lazy. */
  readonly lazyIdleSeconds: number;
  readonly isExclusive: boolean;
  readonly models: readonly string[];
  readonly minComputeCapability: string;
  readonly pool: string;
  readonly tenant: string;
  /** The user of the tenant that it is charged to: the name of a token. Empty: an earlier release created it. */
  readonly user: string;
  readonly queue: string;
  readonly priority: number;
  readonly isPreemptible: boolean;
  readonly gang: string;
  readonly gangSize: number;
  /** Its number among the members, from 0. */
  readonly gangRank: number;
  /** Where the programs of other members would reach that of this claim; empty: unknown. */
  readonly rendezvous: string;
  readonly placement: PlacementPolicy;
  readonly locality: LocalityPolicy;
  readonly isSameNode: boolean;
  readonly labels: Labels;
  readonly nodeLabels: Labels;
  /** UUIDs; empty: any. */
  readonly onlyDevices: readonly string[];
  /** Empty: any. */
  readonly onlyNode: string;
  readonly affinity: Labels;
  readonly antiAffinity: Labels;
  readonly timeLimitSeconds: number;
  readonly idleLimitSeconds: number;
  readonly serviceClass: ServiceClassWord;
  readonly nodeLoss: NodeLossPolicy;
  readonly clientHost: string;
  readonly graceSeconds: number;
  /** While it is awake for a program that has already seen its devices and cannot use different ones: their models. */
  readonly toldModels: readonly string[];
  /** Likewise: the boot id of their host. */
  readonly toldHost: string;
  /** While it has notice: whether it ends after the notice instead of waiting again. */
  readonly isNoticeFinal: boolean;
  /** Id of the program token that created it, which has access to it; empty: it was created with another token. */
  readonly program: string;
}

export const defaultQueueName = "default";
export const defaultTenantName = "default";
export const defaultGraceSeconds = 30;

/** A spec with every field at its default. */
export const defaultClaimSpec: ClaimSpec = {
  name: "",
  gpus: 1,
  memoryBytes: 0n,
  memoryPercent: 0,
  computePercent: 0,
  owner: "",
  leaseSeconds: 15,
  isSessionBound: false,
  isLazy: false,
  lazyIdleSeconds: 0,
  isExclusive: false,
  models: [],
  minComputeCapability: "",
  pool: "",
  tenant: defaultTenantName,
  user: "",
  queue: defaultQueueName,
  priority: 0,
  isPreemptible: false,
  gang: "",
  gangSize: 0,
  gangRank: 0,
  rendezvous: "",
  placement: "least-fragmentation",
  locality: "prefer-local",
  isSameNode: false,
  labels: {},
  nodeLabels: {},
  onlyDevices: [],
  onlyNode: "",
  affinity: {},
  antiAffinity: {},
  timeLimitSeconds: 0,
  idleLimitSeconds: 0,
  serviceClass: "guaranteed",
  nodeLoss: "keep",
  clientHost: "",
  graceSeconds: defaultGraceSeconds,
  toldModels: [],
  toldHost: "",
  isNoticeFinal: false,
  program: "",
};
