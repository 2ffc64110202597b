// SPDX-License-Identifier: Apache-2.0
/** Memory: allocation, copies, fills, and attributes of pointers. */
import type { Group } from "../schema.ts";

const local = { style: "local" } as const;
const pinned = { style: "hand", why: "memory that client and worker both map" } as const;
const copy = {
  style: "hand",
  why: "reads or writes client memory: the data is sent in pieces, or is in shared memory",
} as const;
const allocation = {
  style: "hand",
  why: "counts against the memory limit; the client keeps a map of device memory",
} as const;

/** `N` elements of `elementBytes` each. */
const filled = (elementBytes: number) =>
  ({ kind: "address", extent: { elements: "N", elementBytes }, unlessZero: ["N"] }) as const;
/** `Height` rows of `Width` elements of `elementBytes` each. */
const filled2D = (elementBytes: number) =>
  ({
    kind: "address",
    extent: { elements: "Width", elementBytes, pitch: "dstPitch", rows: "Height" },
    unlessZero: ["Width", "Height"],
  }) as const;
const copied = { kind: "address", extent: { elements: "ByteCount" }, unlessZero: ["ByteCount"] } as const;
const value = { kind: "value" } as const;
const stream = { kind: "stream" } as const;

export const memory = {
  cuMemGetInfo_v2: {
    style: "wait",
    command: "MemGetInfo",
    arguments: { free: { kind: "out" }, total: { kind: "out" } },
  },
  cuMemAlloc_v2: allocation,
  cuMemAllocPitch_v2: allocation,
  cuMemFree_v2: allocation,
  cuMemGetAddressRange_v2: local,
  cuMemBatchDecompressAsync: {
    style: "local",
    how: "as on a device without an engine for it, as its attributes report",
  },
  cuPointerGetAttribute: local,
  cuPointerGetAttributes: local,
  cuPointerSetAttribute: local,

  cuMemAllocHost_v2: pinned,
  cuMemHostAlloc: pinned,
  cuMemFreeHost: pinned,
  cuMemHostRegister: { style: "same", as: "cuMemHostRegister_v2" },
  cuMemHostRegister_v2: pinned,
  cuMemHostUnregister: pinned,
  cuMemHostGetDevicePointer_v2: local,
  cuMemHostGetFlags: local,

  cuMemcpy: copy,
  cuMemcpyAsync: copy,
  cuMemcpyHtoD_v2: copy,
  cuMemcpyHtoDAsync_v2: copy,
  cuMemcpyDtoH_v2: copy,
  cuMemcpyDtoHAsync_v2: copy,
  cuMemcpy2D_v2: copy,
  cuMemcpy2DUnaligned_v2: copy,
  cuMemcpy2DAsync_v2: copy,
  cuMemcpy3D_v2: copy,
  cuMemcpy3DAsync_v2: copy,
  cuMemcpy3DPeer: copy,
  cuMemcpy3DPeerAsync: copy,
  cuMemcpyPeer: copy,
  cuMemcpyPeerAsync: copy,
  cuMemcpyBatchAsync: copy,
  cuMemcpyBatchAsync_v2: copy,
  cuMemcpy3DBatchAsync: copy,
  cuMemcpy3DBatchAsync_v2: copy,
  cuMemcpyAtoA_v2: copy,
  cuMemcpyAtoD_v2: copy,
  cuMemcpyAtoH_v2: copy,
  cuMemcpyAtoHAsync_v2: copy,
  cuMemcpyDtoA_v2: copy,
  cuMemcpyHtoA_v2: copy,
  cuMemcpyHtoAAsync_v2: copy,
  cuMemcpyDtoD_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "copy",
    instead: "copyOfOwn",
    driverSymbol: "cuMemcpyDtoDAsync_v2",
    arguments: { dstDevice: copied, srcDevice: copied, ByteCount: value },
  },
  cuMemcpyDtoDAsync_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "copy",
    instead: "copyOfOwn",
    arguments: { dstDevice: copied, srcDevice: copied, ByteCount: value, hStream: stream },
  },

  cuMemsetD8_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset",
    driverSymbol: "cuMemsetD8Async",
    arguments: { dstDevice: filled(1), uc: value, N: value },
  },
  cuMemsetD16_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset",
    driverSymbol: "cuMemsetD16Async",
    arguments: { dstDevice: filled(2), us: value, N: value },
  },
  cuMemsetD32_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset",
    driverSymbol: "cuMemsetD32Async",
    arguments: { dstDevice: filled(4), ui: value, N: value },
  },
  cuMemsetD2D8_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset2D",
    driverSymbol: "cuMemsetD2D8Async",
    arguments: { dstDevice: filled2D(1), dstPitch: value, uc: value, Width: value, Height: value },
  },
  cuMemsetD2D16_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset2D",
    driverSymbol: "cuMemsetD2D16Async",
    arguments: { dstDevice: filled2D(2), dstPitch: value, us: value, Width: value, Height: value },
  },
  cuMemsetD2D32_v2: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset2D",
    driverSymbol: "cuMemsetD2D32Async",
    arguments: { dstDevice: filled2D(4), dstPitch: value, ui: value, Width: value, Height: value },
  },
  cuMemsetD8Async: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset",
    arguments: { dstDevice: filled(1), uc: value, N: value, hStream: stream },
  },
  cuMemsetD16Async: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset",
    arguments: { dstDevice: filled(2), us: value, N: value, hStream: stream },
  },
  cuMemsetD32Async: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset",
    arguments: { dstDevice: filled(4), ui: value, N: value, hStream: stream },
  },
  cuMemsetD2D8Async: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset2D",
    arguments: {
      dstDevice: filled2D(1),
      dstPitch: value,
      uc: value,
      Width: value,
      Height: value,
      hStream: stream,
    },
  },
  cuMemsetD2D16Async: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset2D",
    arguments: {
      dstDevice: filled2D(2),
      dstPitch: value,
      us: value,
      Width: value,
      Height: value,
      hStream: stream,
    },
  },
  cuMemsetD2D32Async: {
    style: "async",
    left: "books",
    work: true,
    precondition: "memset2D",
    arguments: {
      dstDevice: filled2D(4),
      dstPitch: value,
      ui: value,
      Width: value,
      Height: value,
      hStream: stream,
    },
  },
} as const satisfies Group;
