// SPDX-License-Identifier: Apache-2.0
/** Devices: the vGPUs of the session, in the order of the claim. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const capabilities = { style: "hand", why: "one result for each operation in the request" } as const;
const notification = {
  style: "local",
  how: "notifications report memory above its limit, and no limit can be set below current use: none occurs",
} as const;
const coredump = {
  style: "local",
  how: "values can be set and read; calls that would make the driver write a dump on the GPU's host are refused",
} as const;
const running = {
  style: "local",
  how: "reports this process as running, because it cannot be locked; other processes are refused",
} as const;
const checkpoint = {
  style: "refused",
  why: "the driver's threads are in another process",
} as const;

export const device = {
  cuDeviceGet: local,
  cuDeviceGetCount: local,
  cuDeviceGetName: local,
  cuDeviceTotalMem_v2: local,
  cuDeviceGetAttribute: local,
  cuDeviceGetProperties: local,
  cuDeviceComputeCapability: local,
  cuDeviceGetUuid: { style: "same", as: "cuDeviceGetUuid_v2" },
  cuDeviceGetUuid_v2: local,
  cuDeviceGetPCIBusId: local,
  cuDeviceGetByPCIBusId: local,
  cuDeviceCanAccessPeer: {
    style: "wait",
    left: "trace",
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: { canAccessPeer: { kind: "out" }, dev: { kind: "device" }, peerDev: { kind: "device" } },
  },
  cuDeviceGetP2PAttribute: {
    style: "wait",
    left: "trace",
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: {
      value: { kind: "out" },
      attrib: { kind: "value" },
      srcDevice: { kind: "device" },
      dstDevice: { kind: "device" },
    },
  },
  cuDeviceGetLuid: {
    style: "local",
    how: "as every driver on Linux: locally unique ids exist only on Windows",
  },
  cuDeviceGetNvSciSyncAttributes: {
    style: "local",
    how: "as every driver except those of embedded platforms",
  },
  cuDeviceGetHostAtomicCapabilities: capabilities,
  cuDeviceGetP2PAtomicCapabilities: capabilities,
  cuFlushGPUDirectRDMAWrites: {
    style: "wait",
    left: "books",
    arguments: { target: { kind: "value" }, scope: { kind: "value" } },
  },
  cuDeviceRegisterAsyncNotification: notification,
  cuDeviceUnregisterAsyncNotification: notification,
  cuCoredumpGetAttribute: coredump,
  cuCoredumpGetAttributeGlobal: coredump,
  cuCoredumpSetAttribute: coredump,
  cuCoredumpSetAttributeGlobal: coredump,
  cuCheckpointProcessCheckpoint: running,
  cuCheckpointProcessGetRestoreThreadId: checkpoint,
  cuCheckpointProcessGetState: running,
  cuCheckpointProcessLock: checkpoint,
  cuCheckpointProcessRestore: running,
  cuCheckpointProcessUnlock: running,
  cuDeviceGetExecAffinitySupport: {
    style: "wait",
    left: "books",
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: { pi: { kind: "out" }, type: { kind: "value" }, dev: { kind: "device" } },
  },
  cuDeviceGetTexture1DLinearMaxWidth: {
    style: "wait",
    left: "books",
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: {
      maxWidthInElements: { kind: "out" },
      format: { kind: "value" },
      numChannels: { kind: "value" },
      dev: { kind: "device" },
    },
  },
} as const satisfies Group;
