// SPDX-License-Identifier: Apache-2.0

// Sample records for stores.

import { reason } from "@millpond/api";
import type { QueueSpec, TenantSpec } from "@millpond/scheduler";
import { defaultClaimSpec } from "../domain/claim-spec.ts";
import type { StoreChanges } from "../state/store.ts";
import type {
  AllocationRecord,
  AuditEntry,
  ClaimRecord,
  LoginRecord,
  NodeRecord,
  RemovedNodeRecord,
  TokenRecord,
  UsageRecord,
} from "../domain/records.ts";

export const node: NodeRecord = {
  name: "node-a",
  agentUrl: "http://127.0.0.1:7171",
  agentVersion: "0.1.0",
  hostname: "host",
  bootId: "boot",
  isCordoned: true,
  cordonReason: "new fans",
  labels: { zone: "a" },
  agentLabels: { rack: "7" },
  revision: 1,
  joinedAt: 1_790_000_000,
  devices: [0, 1].map((index) => ({
    index,
    uuid: `GPU-${index}`,
    name: "NVIDIA H200",
    kind: "nvidia",
    memoryBytes: 1n << 37n,
    overheadBytes: 528n << 20n,
    pciBusId: `0000:0${index}:00.0`,
    computeCapability: "9.0",
    multiprocessors: 132,
    numaNode: "1",
    pcieSwitch: "0000:17:00.0",
    nvlinkDomain: "",
    driverVersion: "580.159.04",
    cudaVersion: 13_000,
    isHealthy: index === 0,
    healthReason: index === 0 ? "" : "Xid 79",
    isCordoned: index === 1,
    cordonReason: index === 1 ? "its fan" : "",
  })),
};

export const removedNode: RemovedNodeRecord = { name: "node-b", removedAt: 1_790_000_000, revision: 4 };

export function claim(name: string, change: Partial<ClaimRecord> = {}): ClaimRecord {
  return {
    ...defaultClaimSpec,
    name,
    arrival: 1,
    memoryBytes: 1n << 50n,
    computePercent: 50,
    owner: "ann@host:1 'quoted'; DROP TABLE claims; --",
    isSessionBound: true,
    models: ["H200"],
    labels: { app: "web" },
    serviceClass: "burstable",
    state: "bound",
    reason: undefined,
    version: 1,
    createdAt: 1_790_000_000,
    boundAt: 1_790_000_001,
    endedAt: null,
    waitingSince: null,
    preemptAt: null,
    requeues: 0,
    ...change,
  };
}

export function allocation(name: string, change: Partial<AllocationRecord> = {}): AllocationRecord {
  return {
    claim: name,
    node: "node-a",
    epoch: 1,
    grantedAt: 1_790_000_001,
    activeSeconds: 17,
    countedMs: 99_000,
    releasedRevision: null,
    sizeRevision: 0,
    resizing: null,
    devices: [
      { uuid: "GPU-1", memoryBytes: 1n << 36n, computePercent: 0 },
      { uuid: "GPU-0", memoryBytes: 1n << 36n, computePercent: 50 },
    ],
    ...change,
  };
}

export function changes(revision: number, change: Partial<StoreChanges> = {}): StoreChanges {
  return {
    revision,
    epoch: revision,
    nodes: [],
    removedNodes: [],
    claims: [],
    forgottenClaims: [],
    allocations: [],
    removedAllocations: [],
    queues: [],
    removedQueues: [],
    tenants: [],
    removedTenants: [],
    tokens: [],
    removedTokens: [],
    signingKeys: [],
    logins: [],
    removedLogins: [],
    audit: [],
    usage: [],
    events: [],
    ...change,
  };
}

export const event = {
  at: 1_790_000_000,
  kind: "ClaimBound",
  subject: "claim/a",
  detail: reason("bound-to", { devices: ["node-1/0"] }),
};

export const queue: QueueSpec = {
  name: "research",
  parent: "company",
  weight: 3,
  borrowing: "preemptible",
  guaranteed: { gpuMilli: 1500 },
  limit: { computePercent: 800, memoryBytes: 1n << 40n },
};

export const tenant: TenantSpec = {
  name: "team-a",
  limit: { gpuMilli: 4000 },
  userLimit: { gpuMilli: 1000, memoryBytes: 1n << 36n },
  userLimits: new Map([
    ["file:user", {}],
    ["constructor", { computePercent: 0 }],
  ]),
};

export const usage: UsageRecord = {
  kind: "held",
  claim: "a",
  tenant: "team-a",
  queue: "research",
  user: "ann",
  model: "H200",
  gpuMilli: 500,
  beganAt: 100,
  endedAt: 200,
  activeSeconds: 60,
};

export const token: TokenRecord = {
  name: "ci",
  hash: "0".repeat(64),
  role: "user",
  tenant: "team-a",
  node: "",
  createdAt: 1_790_000_000,
  expiresAt: null,
  createdBy: "file:user",
  revision: 5,
};

export const login: LoginRecord = {
  id: "0123456789abcdef",
  who: "oidc:ann",
  tenant: "team-a",
  kind: "command-line",
  createdAt: 1_790_000_000,
  expiresAt: 1_790_043_200,
  isRevoked: false,
};

export const auditEntry: AuditEntry = {
  at: 1_790_000_000,
  who: "ci",
  role: "user",
  tenant: "team-a",
  what: "ClaimService/ReleaseClaim",
  subject: "claim/a",
  why: "",
  result: "ok",
};
