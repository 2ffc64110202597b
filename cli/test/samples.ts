// SPDX-License-Identifier: Apache-2.0

// One object of each kind, with every member set, for golden tests of their output.

import { create } from "@bufbuild/protobuf";
import {
  ClaimSchema,
  ClaimState,
  DeviceHealth,
  DeviceSchema,
  EventSchema,
  NodeSchema,
  NodeState,
  SessionSchema,
  SessionState,
} from "@millpond/api";

const gibibyte = 2n ** 30n;

/** The present moment in these tests, Unix seconds. */
export const now = 1_790_010_000;

export const device = create(DeviceSchema, {
  node: "node-a",
  index: 1,
  uuid: "GPU-0123",
  name: "Software GPU",
  kind: "softgpu",
  memoryBytes: 4n * gibibyte,
  pciBusId: "0000:01:00.0",
  computeCapability: "7.5",
  multiprocessors: 4,
  driverVersion: "",
  cudaVersion: 13000,
  health: DeviceHealth.UNHEALTHY,
  healthReason: "its workers do not start",
  allocatedMemoryBytes: 512n << 20n,
  allocatedComputePercent: 50,
  virtualGpus: 1,
  usedMemoryBytes: 12n << 20n,
  openSessions: 1,
});

export const node = create(NodeSchema, {
  name: "node-a",
  state: NodeState.READY,
  cordoned: true,
  agentUrl: "http://127.0.0.1:7171",
  agentVersion: "0.1.0",
  run: "3f6c",
  hostname: "host-1",
  bootId: "b155c492",
  warmWorkers: 1,
  joinedAt: BigInt(now - 90_061),
  lastContactAt: BigInt(now - 1),
  devices: [device],
});

export const pendingClaim = create(ClaimSchema, {
  name: "train-a",
  gpus: 2,
  memoryPercent: 50,
  owner: "ann@host-1:17 python",
  leaseSeconds: 30,
  state: ClaimState.PENDING,
  reason: "no node has two devices free",
  version: 4n,
  queuePosition: 3,
  createdAt: BigInt(now - 65),
  leaseExpiresAt: BigInt(now + 20),
});

export const boundClaim = create(ClaimSchema, {
  name: "claim-7f3a",
  gpus: 1,
  memoryBytes: 512n << 20n,
  computePercent: 50,
  owner: "bob@host-2:4711 vectoradd",
  leaseSeconds: 30,
  state: ClaimState.BOUND,
  version: 7n,
  openSessions: 1,
  allocation: {
    claim: "claim-7f3a",
    node: "node-a",
    epoch: 12n,
    devices: [{ uuid: "GPU-0123", memoryBytes: 512n << 20n, computePercent: 50 }],
  },
  createdAt: BigInt(now - 12),
  boundAt: BigInt(now - 12),
  leaseExpiresAt: BigInt(now + 30),
});

export const session = create(SessionSchema, {
  id: "5e0c0d4e-0000-4000-8000-000000000001",
  claim: "claim-7f3a",
  node: "node-a",
  epoch: 12n,
  state: SessionState.CONNECTED,
  startedAt: BigInt(now - 11),
  clientPid: 4712,
  clientHost: "b155c492",
  program: "vectoradd",
  transport: "shm",
  owner: "bob@host-2:4711 vectoradd",
  devices: [
    {
      granted: { uuid: "GPU-0123", memoryBytes: 512n << 20n, computePercent: 50 },
      memoryUsedBytes: 12n << 20n,
      index: 1,
    },
  ],
  commands: 70n,
  launches: 30n,
  waits: 10n,
});

export const event = create(EventSchema, {
  id: 9n,
  at: BigInt(now - 12),
  kind: "ClaimBound",
  subject: "claim/claim-7f3a",
  message: "bound to node-a/1",
});
