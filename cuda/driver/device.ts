// SPDX-License-Identifier: Apache-2.0
/** Devices: the vGPUs of the session, in the order of the claim. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const capabilities = { style: "hand", why: "as many answers as operations are asked about" } as const;
const notification = {
  style: "refused",
  why: "it tells of events of the GPU's host, which has other tenants",
} as const;
const coredump = { style: "refused", why: "the driver would write the dump on the GPU's host" } as const;
const checkpoint = { style: "refused", why: "it names processes of the GPU's host" } as const;

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
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: { canAccessPeer: { kind: "out" }, dev: { kind: "device" }, peerDev: { kind: "device" } },
  },
  cuDeviceGetP2PAttribute: {
    style: "wait",
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: {
      value: { kind: "out" },
      attrib: { kind: "value" },
      srcDevice: { kind: "device" },
      dstDevice: { kind: "device" },
    },
  },
  cuDeviceGetLuid: { style: "refused", why: "locally unique ids exist on Windows only" },
  cuDeviceGetNvSciSyncAttributes: { style: "refused", why: "NvSciSync exists on embedded platforms only" },
  cuDeviceGetHostAtomicCapabilities: capabilities,
  cuDeviceGetP2PAtomicCapabilities: capabilities,
  cuFlushGPUDirectRDMAWrites: {
    style: "wait",
    arguments: { target: { kind: "value" }, scope: { kind: "value" } },
  },
  cuDeviceRegisterAsyncNotification: notification,
  cuDeviceUnregisterAsyncNotification: notification,
  cuCoredumpGetAttribute: coredump,
  cuCoredumpGetAttributeGlobal: coredump,
  cuCoredumpSetAttribute: coredump,
  cuCoredumpSetAttributeGlobal: coredump,
  cuCheckpointProcessCheckpoint: checkpoint,
  cuCheckpointProcessGetRestoreThreadId: checkpoint,
  cuCheckpointProcessGetState: checkpoint,
  cuCheckpointProcessLock: checkpoint,
  cuCheckpointProcessRestore: checkpoint,
  cuCheckpointProcessUnlock: checkpoint,
  cuDeviceGetExecAffinitySupport: {
    style: "wait",
    context: "none",
    cached: { invalidatedBy: [] },
    arguments: { pi: { kind: "out" }, type: { kind: "value" }, dev: { kind: "device" } },
  },
  cuDeviceGetTexture1DLinearMaxWidth: {
    style: "wait",
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
