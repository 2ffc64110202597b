// SPDX-License-Identifier: Apache-2.0

import type { ServiceClassWord } from "@millpond/api";
import type { Labels, PlacementPolicy } from "@millpond/scheduler";
import { readMembers, writeMembers } from "./members.ts";

export type LocalityPolicy = "prefer-local" | "local-only" | "any";
export type NodeLossPolicy = "keep" | "requeue" | "fail";

/** What a user asks, checked, with the defaults filled in. Members mean what the fields of the API's Claim say. */
export interface ClaimSpec {
  /** Empty: the controller makes one. */
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
  readonly queue: string;
  readonly priority: number;
  readonly isPreemptible: boolean;
  readonly gang: string;
  readonly gangSize: number;
  readonly placement: PlacementPolicy;
  readonly locality: LocalityPolicy;
  readonly isSameNode: boolean;
  readonly labels: Labels;
  readonly nodeLabels: Labels;
  readonly affinity: Labels;
  readonly antiAffinity: Labels;
  readonly timeLimitSeconds: number;
  readonly idleLimitSeconds: number;
  readonly serviceClass: ServiceClassWord;
  readonly nodeLoss: NodeLossPolicy;
  readonly clientHost: string;
  readonly graceSeconds: number;
  /** While it is awake for a program that was told so of its devices, and cannot do with others: their models. */
  readonly toldModels: readonly string[];
  /** The same: the boot id of the machine that they are on. */
  readonly toldHost: string;
  /** While it has notice: when that is over it ends, and does not wait again. */
  readonly isNoticeFinal: boolean;
}

export const defaultQueueName = "default";
export const defaultTenantName = "default";
export const defaultGraceSeconds = 30;

/** What a claim asks that says nothing. */
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
  queue: defaultQueueName,
  priority: 0,
  isPreemptible: false,
  gang: "",
  gangSize: 0,
  placement: "least-fragmentation",
  locality: "prefer-local",
  isSameNode: false,
  labels: {},
  nodeLabels: {},
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
};

/** The members that are not at their default, but the name, which is the key. */
export function writeClaimSpec(spec: ClaimSpec): string {
  return writeMembers(spec, defaultClaimSpec, ["name"]);
}

/** @throws MILLPOND_E_STATE_BROKEN */
export function readClaimSpec(name: string, text: string): ClaimSpec {
  return { ...readMembers(text, defaultClaimSpec), name };
}
